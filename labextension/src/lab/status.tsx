/**
 * What one holds and waits for, in JupyterLab's status bar; a click opens the panel.
 */
import { GroupItem, TextItem } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Glance, inFull, inShort } from '../glance';
import { IWords } from '../words';
import { poolIcon } from './icon';

/** The item; it is empty, and takes no room, where there is nothing to say. */
export class StatusItem extends ReactWidget {
  constructor(
    private readonly glance: Glance,
    private readonly words: IWords,
    private readonly onClick: () => void
  ) {
    super();
    this.addClass('jp-gpupool-Status');
    glance.stateChanged.connect(this.update, this);
  }

  protected render(): JSX.Element | null {
    const text = inShort(this.glance, this.words);
    if (!text) {
      return null;
    }
    return (
      <button
        type="button"
        title={inFull(this.glance, this.words)}
        aria-label={this.words.trans.__('GPU pool: %1', inFull(this.glance, this.words))}
        onClick={this.onClick}
      >
        <GroupItem spacing={4}>
          <poolIcon.react tag="span" stylesheet="statusBar" />
          <TextItem source={text} />
        </GroupItem>
      </button>
    );
  }
}
