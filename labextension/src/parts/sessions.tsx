/**
 * The user's own slices: this server's first.
 */
import * as React from 'react';

import { ILease } from '../api';
import { expected, IWords, size } from '../words';
import { Section } from './section';

interface ISessionsProps extends IWords {
  leases: ILease[];
  /** The Hub's name of this server ('' is the default one); null where there is no Hub. */
  server: string | null;
}

/** What each of the user's sessions holds, how it is kept apart from others, and until when. */
export function Sessions({ leases, server, trans, format }: ISessionsProps): JSX.Element | null {
  if (leases.length === 0 && server === null) {
    return null;
  }
  const isThis = (lease: ILease) => server !== null && lease.server === server;
  const sorted = [...leases].sort((one, other) => Number(isThis(other)) - Number(isThis(one)));
  return (
    <Section title={trans.__('My sessions')}>
      {!leases.some(isThis) && server !== null && (
        <p className="jp-gpupool-Quiet">{trans.__('This server has no GPU: it was started on CPUs only.')}</p>
      )}
      <ul className="jp-gpupool-Jobs" aria-label={trans.__('My sessions')}>
        {sorted.map(lease => (
          <Session key={lease.id} lease={lease} isThis={isThis(lease)} trans={trans} format={format} />
        ))}
      </ul>
    </Section>
  );
}

function Session(props: IWords & { lease: ILease; isThis: boolean }): JSX.Element {
  const { lease, isThis, trans, format } = props;
  const named = lease.server ? trans.__('Server %1', lease.server) : trans.__('Session %1', lease.id);
  const at = lease.placement?.gpus.map(gpu => `${gpu.node ?? ''}:${gpu.index ?? gpu.uuid}`).join(', ');
  return (
    <li>
      <span className="jp-gpupool-JobName">{isThis ? trans.__('This server') : named}</span>
      <span className="jp-gpupool-Size">{size(lease.request, props)}</span>
      {lease.placement && (
        <span className="jp-gpupool-When" title={lease.placement.isolation}>
          {[at, lease.placement.mode].filter(Boolean).join(' · ')}
        </span>
      )}
      {lease.expires_at && (
        <span className="jp-gpupool-When">
          {trans.__('Ends %1, %2.', format.time(new Date(lease.expires_at)), format.until(new Date(lease.expires_at)))}
        </span>
      )}
      {lease.waiting && (
        <span className="jp-gpupool-Why">
          {expected(lease.waiting, props)} {lease.waiting.message}
        </span>
      )}
    </li>
  );
}
