/**
 * The user's own jobs, and what can be done to them.
 */
import * as React from 'react';

import { Action, IJob } from '../api';
import { JOBS_SHOWN } from '../model';
import { expected, IWords, label, size, stateName, Trans } from '../words';
import { Section } from './section';

interface IJobsProps extends IWords {
  running: IJob[];
  waiting: IJob[];
  ended: IJob[];
  onAct: (job: IJob, action: Action) => void;
}

/** The jobs that run or wait, then the last that ended. */
export function Jobs(props: IJobsProps): JSX.Element {
  const { trans, running, waiting, ended } = props;
  const jobs = [...running, ...waiting, ...ended];
  return (
    <Section title={trans.__('My jobs')}>
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
          <Job key={label(job)} {...props} job={job} />
        ))}
      </ul>
    </Section>
  );
}

function atLeast(count: number): string {
  return count >= JOBS_SHOWN ? `${count}+` : `${count}`;
}

function Job(props: IJobsProps & { job: IJob }): JSX.Element {
  const { trans, job, onAct } = props;
  const fraction = job.progress?.fraction;
  const actions = possible(job);
  return (
    <li>
      <span className="jp-gpupool-JobName" title={job.name ?? undefined}>
        {label(job)} {job.name}
      </span>
      <span className={`jp-gpupool-State jp-mod-${job.state}`}>{stateName(job.state, trans)}</span>
      <span className="jp-gpupool-When">
        {[size(job.request, props), when(job, props)].filter(Boolean).join(' · ')}
      </span>
      {fraction !== null && fraction !== undefined && <Progress {...props} fraction={fraction} />}
      {job.waiting && <span className="jp-gpupool-Why">{job.waiting.message}</span>}
      {job.state === 'failed' && job.reason && <span className="jp-gpupool-Why">{job.reason}</span>}
      {actions.length > 0 && (
        <span className="jp-gpupool-Actions">
          {actions.map(action => (
            <button
              key={action}
              type="button"
              aria-label={trans.__('%1 job %2', actionName(action, trans), label(job))}
              onClick={() => onAct(job, action)}
            >
              {actionName(action, trans)}
            </button>
          ))}
        </span>
      )}
    </li>
  );
}

function Progress(props: IJobsProps & { job: IJob; fraction: number }): JSX.Element {
  const { trans, format, job, fraction } = props;
  return (
    <div
      className="jp-gpupool-Bar"
      role="progressbar"
      aria-label={trans.__('Progress of job %1', label(job))}
      aria-valuemin={0}
      aria-valuemax={1}
      aria-valuenow={fraction}
      aria-valuetext={format.fraction(fraction)}
    >
      <div style={{ width: `${100 * fraction}%` }} />
    </div>
  );
}

/** What can be done to a job as it is now. */
function possible(job: IJob): Action[] {
  switch (job.state) {
    case 'queued':
      return ['hold', 'cancel'];
    case 'held':
      return ['release', 'cancel'];
    case 'running':
      return ['requeue', 'cancel'];
    case 'starting':
      return ['cancel'];
    default:
      return [];
  }
}

function actionName(action: Action, trans: Trans): string {
  return {
    cancel: trans.__('Cancel'),
    hold: trans.__('Hold'),
    release: trans.__('Release'),
    requeue: trans.__('Requeue')
  }[action];
}

/** When a waiting job is expected to start; since when one runs, and how far it is; when one ended. */
function when(job: IJob, words: IWords): string {
  const { trans, format } = words;
  const time = (at: string) => format.time(new Date(at));
  if (job.waiting) {
    return job.state === 'held' && !job.waiting.expected_start ? '' : expected(job.waiting, words);
  }
  if (job.ended_at) {
    return trans.__('Ended %1.', time(job.ended_at));
  }
  if (!job.started_at) {
    return '';
  }
  const since = trans.__('Since %1', time(job.started_at));
  const fraction = job.progress?.fraction;
  return fraction === null || fraction === undefined
    ? `${since}.`
    : trans.__('%1, %2 done.', since, format.fraction(fraction));
}
