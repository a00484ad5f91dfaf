/**
 * The panel's content: what is seen of the pool, and plain words where nothing is.
 */
import { TranslationBundle } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { IGroupQuota, IJob, PoolError } from './api';
import { Format } from './format';
import { ISeen, JOBS_SHOWN } from './model';

interface IWords {
  trans: TranslationBundle;
  format: Format;
}

interface IPanelProps extends IWords {
  seen: ISeen | null;
  problem: PoolError | null;
  onRefresh: () => void;
  onStart: () => void;
}

/** The whole panel. */
export function Panel(props: IPanelProps): JSX.Element {
  const { trans, format, seen, problem } = props;
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
      {problem && <Problem {...props} problem={problem} />}
      {!seen && !problem && <p className="jp-gpupool-Quiet">{trans.__('Asking the pool …')}</p>}
      {seen && (
        <>
          <Quota groups={seen.quota.groups} trans={trans} format={format} />
          <Jobs running={seen.running} waiting={seen.waiting} trans={trans} format={format} />
        </>
      )}
    </>
  );
}

/** Why there is no answer, since when, and what to do. */
function Problem(props: IPanelProps & { problem: PoolError }): JSX.Element {
  const { trans, format, seen, problem } = props;
  if (problem.code === 'starting') {
    return <Notice>{trans.__("The pool's service is starting. This takes a few seconds.")}</Notice>;
  }
  const start = (
    <button type="button" className="jp-mod-styled jp-mod-accept" onClick={props.onStart}>
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
      {seen && <p>{trans.__('What you see below is from %1.', format.time(seen.at))}</p>}
      {problem.startable && start}
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

/** What each of the user's groups may use and does, and the user's own part. */
function Quota(props: IWords & { groups: IGroupQuota[] }): JSX.Element {
  const { trans, groups } = props;
  return (
    <section className="jp-gpupool-Section">
      <h3>{trans.__('Quota')}</h3>
      {groups.length === 0 && (
        <p className="jp-gpupool-Quiet">
          {trans.__('You are in no group of this pool: you can use CPUs, but no GPU.')}
        </p>
      )}
      {groups.map(group => (
        <Group key={group.name} group={group} trans={trans} format={props.format} />
      ))}
    </section>
  );
}

function Group(props: IWords & { group: IGroupQuota }): JSX.Element {
  const { trans, format, group } = props;
  const own = group.user;
  const milli = (value: number) => format.milli(value);
  const kinds = [
    { key: 'gpus_milli', ofGroup: trans.__('GPUs'), ofUser: trans.__('Your GPUs'), write: milli },
    { key: 'cpus_milli', ofGroup: trans.__('CPUs'), ofUser: trans.__('Your CPUs'), write: milli },
    {
      key: 'memory_mib',
      ofGroup: trans.__('Memory'),
      ofUser: trans.__('Your memory'),
      write: (value: number) => format.memory(value)
    }
  ] as const;
  const bar = (label: string, used: number | undefined, limit: number | undefined, write: (n: number) => string) => (
    <Bar trans={trans} label={label} of={group.name} used={used} limit={limit} write={write} />
  );
  return (
    <div className="jp-gpupool-Group">
      <h4>{group.name}</h4>
      {kinds.map(({ key, ofGroup, ofUser, write }) => (
        <React.Fragment key={key}>
          {bar(ofGroup, group.used[key], group.quota[key], write)}
          {bar(ofUser, own.used[key], own.limits[key], write)}
        </React.Fragment>
      ))}
      {group.over_since && (
        <p className="jp-gpupool-Over">
          {group.borrowed.length > 0
            ? trans.__(
                'Over quota since %1: what is borrowed goes back when it is needed.',
                format.time(new Date(group.over_since))
              )
            : trans.__('Over quota since %1.', format.time(new Date(group.over_since)))}
        </p>
      )}
      {group.borrowed.map(loan => (
        <p key={`of-${loan.group}`} className="jp-gpupool-Quiet">
          {trans.__(
            'Has %1 GPUs of %2 until about %3.',
            milli(loan.gpus_milli),
            loan.group,
            format.time(new Date(loan.until))
          )}
        </p>
      ))}
      {group.lent.map(loan => (
        <p key={`to-${loan.group}`} className="jp-gpupool-Quiet">
          {trans.__(
            'Lends %1 GPUs to %2, until %3 at the latest.',
            milli(loan.gpus_milli),
            loan.group,
            format.time(new Date(loan.until))
          )}
        </p>
      ))}
    </div>
  );
}

interface IBarProps {
  trans: TranslationBundle;
  label: string;
  of: string;
  used: number | undefined;
  limit: number | undefined;
  write: (value: number) => string;
}

/** One amount out of a limit; nothing where there is no limit to fill. */
function Bar({ trans, label, of, used = 0, limit, write }: IBarProps): JSX.Element | null {
  if (limit === undefined || limit === null) {
    return null;
  }
  const text = trans.__('%1 of %2', write(used), write(limit));
  const percent = limit > 0 ? Math.min(100, (100 * used) / limit) : used > 0 ? 100 : 0;
  return (
    <div className="jp-gpupool-Amount">
      <span>{label}</span>
      <span className="jp-gpupool-Numbers">{text}</span>
      <div
        className={used > limit ? 'jp-gpupool-Bar jp-mod-over' : 'jp-gpupool-Bar'}
        role="progressbar"
        aria-label={trans.__('%1, group %2', label, of)}
        aria-valuemin={0}
        aria-valuemax={limit}
        aria-valuenow={Math.min(used, limit)}
        aria-valuetext={text}
      >
        <div style={{ width: `${percent}%` }} />
      </div>
    </div>
  );
}

/** The user's jobs that run or wait. */
function Jobs(props: IWords & { running: IJob[]; waiting: IJob[] }): JSX.Element {
  const { trans, format, running, waiting } = props;
  const jobs = [...running, ...waiting];
  return (
    <section className="jp-gpupool-Section">
      <h3>{trans.__('My jobs')}</h3>
      <p className="jp-gpupool-Count" role="status" aria-live="polite">
        {trans.__('%1 running, %2 waiting', atLeast(running.length), atLeast(waiting.length))}
      </p>
      {jobs.length === 0 && (
        <p className="jp-gpupool-Quiet">
          {trans.__('Submit one from a notebook:')} <code>%gpupool submit train.py</code>
        </p>
      )}
      <ul className="jp-gpupool-Jobs" aria-label={trans.__('My jobs')}>
        {jobs.map(job => (
          <Job key={job.id} job={job} trans={trans} format={format} />
        ))}
      </ul>
    </section>
  );
}

function atLeast(count: number): string {
  return count >= JOBS_SHOWN ? `${count}+` : `${count}`;
}

function Job(props: IWords & { job: IJob }): JSX.Element {
  const { trans, format, job } = props;
  const words = {
    running: trans.__('running'),
    starting: trans.__('starting'),
    stopping: trans.__('stopping'),
    queued: trans.__('waiting'),
    held: trans.__('held')
  };
  return (
    <li>
      <span className="jp-gpupool-JobName" title={job.name}>
        {job.id} {job.name}
      </span>
      <span className={`jp-gpupool-State jp-mod-${job.state}`}>{words[job.state]}</span>
      <span className="jp-gpupool-When">{when(job, trans, format)}</span>
      {job.waiting && <span className="jp-gpupool-Why">{job.waiting.message}</span>}
    </li>
  );
}

/** When a waiting job is expected to start; since when one runs, and how far it is. */
function when(job: IJob, trans: TranslationBundle, format: Format): string {
  if (job.waiting) {
    if (!job.waiting.expected_start) {
      return job.state === 'held' ? '' : trans.__('Start not known yet.');
    }
    const start = format.time(new Date(job.waiting.expected_start));
    return job.waiting.kind === 'promise'
      ? trans.__('Will start by %1.', start)
      : trans.__('Should start about %1.', start);
  }
  if (!job.started_at) {
    return '';
  }
  const since = trans.__('Since %1', format.time(new Date(job.started_at)));
  const fraction = job.progress?.fraction;
  return fraction === null || fraction === undefined
    ? `${since}.`
    : trans.__('%1, %2 done.', since, format.fraction(fraction));
}
