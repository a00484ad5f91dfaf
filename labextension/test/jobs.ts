/** Jobs and leases as the service describes them. */
import { IJob, ILease } from '../src/api';

export function job(id: number, more: Partial<IJob> = {}): IJob {
  return {
    id,
    name: `train-${id}`,
    state: 'queued',
    user: 'ada',
    group: 'vision',
    priority: 'normal',
    request: { gpus: 1, gpu_mib: 0, gpu_types: [], cpus_milli: 6000, memory_mib: 1024 },
    started_at: null,
    ended_at: null,
    expires_at: null,
    exit_code: null,
    reason: null,
    waiting: {
      reason: 'GroupQuota',
      message: 'vision uses 6 of 6 GPUs.',
      position: id,
      expected_start: null,
      kind: null
    },
    placement: null,
    progress: null,
    array: null,
    array_id: null,
    array_index: null,
    ...more
  };
}

export function lease(more: Partial<ILease> = {}): ILease {
  return {
    id: 3,
    state: 'held',
    group: 'vision',
    server: '',
    request: { gpus: 0, gpu_mib: 4096, gpu_types: [], cpus_milli: 1000, memory_mib: 1024 },
    started_at: null,
    expires_at: null,
    waiting: null,
    placement: null,
    ...more
  };
}
