/**
 * Why there is no answer, or why something was refused, and what to do.
 */
import * as React from 'react';

import { PoolError } from '../api';
import { IWords } from '../words';

interface IProblemProps extends IWords {
  problem: PoolError;
  /** When what is shown below was seen; null where nothing is. */
  seenAt: Date | null;
  onStart: () => void;
}

/** Why there is no answer, since when, and what to do. */
export function Problem({ trans, format, problem, seenAt, onStart }: IProblemProps): JSX.Element {
  if (problem.code === 'starting') {
    return <Notice>{trans.__("The pool's service is starting. This takes a few seconds.")}</Notice>;
  }
  const start = (
    <button type="button" className="jp-mod-styled jp-mod-accept" onClick={onStart}>
      {trans.__('Start the pool')}
    </button>
  );
  if (problem.code === 'not_running') {
    return (
      <Notice>
        <p>{trans.__("The pool's service is not running. It ends by itself when nothing has been live for a while.")}</p>
        {start}
      </Notice>
    );
  }
  return (
    <Notice isError>
      <p>{problem.message}</p>
      {problem.hint && <p>{problem.hint}</p>}
      {seenAt && <p>{trans.__('What you see below is from %1.', format.time(seenAt))}</p>}
      {problem.startable && start}
    </Notice>
  );
}

/** What the pool said of something that it did not do. */
export function Refusal({ refusal }: { refusal: PoolError }): JSX.Element {
  return (
    <Notice isError>
      <p>{refusal.message}</p>
      {refusal.hint && <p>{refusal.hint}</p>}
    </Notice>
  );
}

function Notice(props: { isError?: boolean; children: React.ReactNode }): JSX.Element {
  return (
    <section
      className={props.isError ? 'jp-gpupool-Notice jp-mod-error' : 'jp-gpupool-Notice'}
      role={props.isError ? 'alert' : 'status'}
    >
      {props.children}
    </section>
  );
}
