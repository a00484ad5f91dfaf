/**
 * The panel's content: what is seen of the pool, and plain words where nothing is.
 */
import { refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Action, IJob, PoolError } from './api';
import { ISeen } from './model';
import { Ahead } from './parts/ahead';
import { Jobs } from './parts/jobs';
import { Problem, Refusal } from './parts/notices';
import { Queue } from './parts/queue';
import { Quota } from './parts/quota';
import { Sessions } from './parts/sessions';
import { IWords } from './words';

interface IPanelProps extends IWords {
  seen: ISeen | null;
  problem: PoolError | null;
  refusal: PoolError | null;
  /** The Hub's name of this server ('' is the default one); null where there is no Hub. */
  server: string | null;
  onRefresh: () => void;
  onStart: () => void;
  onAct: (job: IJob, action: Action) => void;
}

/** The whole panel. */
export function Panel(props: IPanelProps): JSX.Element {
  const { trans, format, seen, problem, refusal } = props;
  const words = { trans, format };
  return (
    <>
      <header className="jp-gpupool-Header">
        <h2>{trans.__('GPU pool')}</h2>
        {seen?.whoami.simulated && (
          <span
            className="jp-gpupool-Badge"
            title={trans.__('Jobs really run, on the CPU; only the cards are simulated.')}
          >
            {trans.__('Simulated pool')}
          </span>
        )}
        <button
          type="button"
          className="jp-gpupool-Refresh"
          aria-label={trans.__('Refresh the GPU pool')}
          title={trans.__('Refresh')}
          onClick={props.onRefresh}
        >
          <refreshIcon.react tag="span" />
        </button>
      </header>
      {problem && <Problem {...words} problem={problem} seenAt={seen?.at ?? null} onStart={props.onStart} />}
      {refusal && <Refusal refusal={refusal} />}
      {!seen && !problem && <p className="jp-gpupool-Quiet">{trans.__('Asking the pool …')}</p>}
      {seen && (
        <>
          <Sessions {...words} leases={seen.leases} server={props.server} />
          <Quota {...words} groups={seen.quota.groups} />
          <Jobs {...words} running={seen.running} waiting={seen.waiting} ended={seen.ended} onAct={props.onAct} />
          <Queue {...words} queue={seen.queue} user={seen.whoami.user} />
          <Ahead {...words} reservations={seen.reservations} />
        </>
      )}
    </>
  );
}
