import { PageConfig } from '@jupyterlab/coreutils';
import { Event } from '@jupyterlab/services';
import { VDomRenderer } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { PoolClient } from '../api';
import { listen } from '../events';
import { poolIcon } from './icon';
import { PoolModel } from '../model';
import { Panel } from '../view';
import { IWords } from '../words';

export const PANEL = 'jupyter-gpupool:sidebar';

/** The sidebar's panel; it asks the pool only while it is in sight. */
export class PoolPanel extends VDomRenderer<PoolModel> {
  constructor(client: PoolClient, events: Event.IManager, words: IWords) {
    super(new PoolModel(client, () => this.isVisible));
    this.unlisten = listen(events, event => this.model.hear(event));
    this.words = words;
    this.id = PANEL;
    this.title.icon = poolIcon;
    this.title.caption = words.trans.__('GPU pool');
    this.addClass('jp-gpupool-Panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', words.trans.__('GPU pool'));
    this.node.tabIndex = 0; // so that the keyboard can scroll it
  }

  dispose(): void {
    this.unlisten();
    this.model.dispose();
    super.dispose();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.refresh();
  }

  protected render(): JSX.Element {
    return (
      <Panel
        seen={this.model.seen}
        problem={this.model.problem}
        refusal={this.model.refusal}
        server={PageConfig.getOption('hubUser') ? PageConfig.getOption('hubServerName') : null}
        {...this.words}
        onRefresh={() => this.model.refresh()}
        onStart={() => void this.model.start()}
        onAct={(job, action) => void this.model.act(job.id, action)}
      />
    );
  }

  private readonly unlisten: () => void;
  private readonly words: IWords;
}
