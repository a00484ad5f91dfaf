import { ITranslator } from '@jupyterlab/translation';
import { VDomRenderer } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { PoolClient } from './api';
import { Format } from './format';
import { poolIcon } from './icon';
import { PoolModel } from './model';
import { Panel } from './view';

/** The sidebar's panel; it asks the pool only while it is in sight. */
export class PoolPanel extends VDomRenderer<PoolModel> {
  constructor(client: PoolClient, translator: ITranslator) {
    super(new PoolModel(client, () => this.isVisible));
    this.trans = translator.load('jupyter_gpupool');
    this.format = new Format(translator.languageCode);
    this.id = 'jupyter-gpupool:sidebar';
    this.title.icon = poolIcon;
    this.title.caption = this.trans.__('GPU pool');
    this.addClass('jp-gpupool-Panel');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', this.trans.__('GPU pool'));
    this.node.tabIndex = 0; // so that the keyboard can scroll it
  }

  dispose(): void {
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
        trans={this.trans}
        format={this.format}
        onRefresh={() => this.model.refresh()}
        onStart={() => void this.model.start()}
      />
    );
  }

  private readonly trans: ReturnType<ITranslator['load']>;
  private readonly format: Format;
}
