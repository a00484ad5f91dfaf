/**
 * What every part of the panel needs to write: the user's language, for words, numbers and times.
 */
import { TranslationBundle } from '@jupyterlab/translation';

import { IJob, IRequest, IWaiting } from './api';
import { Format } from './format';

export type Trans = Pick<TranslationBundle, '__' | '_n'>;

export interface IWords {
  trans: Trans;
  format: Format;
}

/** A job's number as people type it: a task of an array has that of the array and its own. */
export function label(job: IJob): string {
  return job.array_id !== null && job.array_index !== null ? `${job.array_id}_${job.array_index}` : `${job.id}`;
}

/** How many GPUs, or how much of one, work asks for. */
export function size(request: IRequest, { trans, format }: IWords): string {
  if (request.gpus) {
    return trans._n('%1 GPU', '%1 GPUs', request.gpus);
  }
  return request.gpu_mib ? trans.__('%1 of a GPU', format.memory(request.gpu_mib)) : trans.__('no GPU');
}

/** When something that waits is expected to start, by a promise or an estimate. */
export function expected(waiting: IWaiting, { trans, format }: IWords): string {
  if (!waiting.expected_start) {
    return trans.__('Start not known yet.');
  }
  const start = format.time(new Date(waiting.expected_start));
  return waiting.kind === 'promise'
    ? trans.__('Will start by %1.', start)
    : trans.__('Should start about %1.', start);
}

/** A state in a word. */
export function stateName(state: string, trans: Trans): string {
  const names: Record<string, string> = {
    running: trans.__('running'),
    starting: trans.__('starting'),
    stopping: trans.__('stopping'),
    queued: trans.__('waiting'),
    held: trans.__('held'),
    completed: trans.__('completed'),
    failed: trans.__('failed'),
    cancelled: trans.__('cancelled'),
    timed_out: trans.__('out of time')
  };
  return names[state] ?? state;
}
