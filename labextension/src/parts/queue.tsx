/**
 * What waits, in order, with why and until when.
 */
import * as React from 'react';

import { IJob, IQueue } from '../api';
import { expected, IWords, label, size, stateName } from '../words';
import { Rows } from './rows';
import { Section } from './section';

const ROW = 82; // pixels: four lines
const IN_SIGHT = 6;

interface IQueueProps extends IWords {
  queue: IQueue;
  user: string;
}

/** The queue of the whole pool; one's own jobs stand out. */
export function Queue({ queue, user, trans, format }: IQueueProps): JSX.Element {
  const { waiting, running } = queue;
  return (
    <Section title={trans.__('Queue')} count={trans.__('%1 waiting', waiting.length)}>
      {waiting.length === 0 ? (
        <p className="jp-gpupool-Quiet">{trans.__('Nothing waits: what you submit starts as soon as it fits.')}</p>
      ) : (
        <Rows
          label={trans.__('What waits, in order')}
          items={waiting}
          height={ROW}
          most={IN_SIGHT}
          keyOf={job => label(job)}
          render={job => <Waiting job={job} isMine={job.user === user} trans={trans} format={format} />}
        />
      )}
      <p className="jp-gpupool-Quiet">{trans._n('%1 job is running.', '%1 jobs are running.', running.length)}</p>
    </Section>
  );
}

function Waiting(props: IWords & { job: IJob; isMine: boolean }): JSX.Element {
  const { job, isMine, trans } = props;
  const whose = isMine ? trans.__('you') : (job.user ?? trans.__('somebody of %1', job.group));
  const why = job.waiting?.message ?? stateName(job.state, trans);
  return (
    <div className={isMine ? 'jp-gpupool-Waiting jp-mod-mine' : 'jp-gpupool-Waiting'}>
      <span className="jp-gpupool-Place">{job.waiting?.position ?? '–'}</span>
      <span className="jp-gpupool-JobName" title={job.name ?? undefined}>
        {label(job)} {job.name ?? ''} <span className="jp-gpupool-Whose">{whose}</span>
      </span>
      <span className="jp-gpupool-Size">{size(job.request, props)}</span>
      <span className="jp-gpupool-When">
        {trans.__('Priority %1, %2.', job.priority, stateName(job.state, trans))}
      </span>
      <span className="jp-gpupool-When">{job.waiting ? expected(job.waiting, props) : ''}</span>
      <span className="jp-gpupool-Why" title={why}>
        {why}
      </span>
    </div>
  );
}
