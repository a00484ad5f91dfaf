/**
 * The pool's REST, as Jupyter Server passes it on, and the shapes of its answers.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

const NAMESPACE = 'jupyter-gpupool';

/** Integers by resource: thousandths of GPUs and CPUs, MiB of memory. */
export interface IAmounts {
  gpus_milli?: number;
  cpus_milli?: number;
  memory_mib?: number;
}

export interface IWhoami {
  user: string;
  simulated: boolean;
  pool: string | null;
}

export interface ILoan {
  group: string;
  gpus_milli: number;
  until: string;
}

export interface IGroupQuota {
  name: string;
  quota: IAmounts;
  used: IAmounts;
  user: { limits: IAmounts; used: IAmounts };
  over_since: string | null;
  lent: ILoan[];
  borrowed: ILoan[];
}

export interface IQuota {
  user: string;
  groups: IGroupQuota[];
}

export const RUNNING = ['running', 'starting', 'stopping'] as const;
export const WAITING = ['queued', 'held'] as const;

export type ActiveState = (typeof RUNNING)[number] | (typeof WAITING)[number];

export interface IJob {
  id: number;
  name: string;
  state: ActiveState;
  started_at: string | null;
  waiting: {
    message: string;
    position: number | null;
    expected_start: string | null;
    kind: 'promise' | 'estimate' | null;
  } | null;
  progress: { fraction: number | null } | null;
}

/** A refusal of the service, or the server's word that there is no service to ask; can the user start one? */
export class PoolError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint: string | null = null,
    readonly startable: boolean = false
  ) {
    super(message);
  }
}

/** Requests under `<base URL>jupyter-gpupool/`. */
export class PoolClient {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  whoami(): Promise<IWhoami> {
    return this.request('whoami');
  }

  quota(): Promise<IQuota> {
    return this.request('quota');
  }

  /** The user's newest jobs in one of the states. */
  async jobs(states: readonly ActiveState[], limit: number): Promise<IJob[]> {
    const found = await this.request<{ jobs: IJob[] }>(`jobs?state=${states.join(',')}&limit=${limit}`);
    return found.jobs;
  }

  /** Ask for the service to be started where it is not running. */
  async start(): Promise<void> {
    await this.request('start', { method: 'POST' });
  }

  private async request<T>(path: string, init: RequestInit = {}): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, NAMESPACE, path);
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    const text = await response.text();
    if (!response.ok) {
      throw asError(response.status, text);
    }
    return (text ? JSON.parse(text) : undefined) as T;
  }
}

function asError(status: number, text: string): PoolError {
  try {
    const { error, startable } = JSON.parse(text);
    return new PoolError(error.code, error.message, error.hint, startable);
  } catch {
    return new PoolError('unexpected_reply', `Jupyter Server answered with HTTP status ${status}.`);
  }
}
