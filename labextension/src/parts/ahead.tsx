/**
 * What is set apart, now or soon: reservations and maintenance.
 */
import * as React from 'react';

import { IReservation } from '../api';
import { IWords } from '../words';
import { Section } from './section';

/** The reservations that hold or will; nothing where there are none. */
export function Ahead(props: IWords & { reservations: IReservation[] }): JSX.Element | null {
  const { reservations, trans, format } = props;
  const known = reservations.filter(one => one.phase !== 'over');
  if (known.length === 0) {
    return null;
  }
  return (
    <Section title={trans.__('Set apart')}>
      <ul className="jp-gpupool-Jobs" aria-label={trans.__('Set apart')}>
        {known.map(one => (
          <li key={one.id}>
            <span className="jp-gpupool-JobName">
              {one.maintenance ? trans.__('Maintenance') : trans.__('Reserved for %1', one.groups.join(', '))}
            </span>
            <span className="jp-gpupool-Size">{trans._n('%1 GPU', '%1 GPUs', one.cards.length)}</span>
            <span className="jp-gpupool-When">{span(one, { trans, format })}</span>
            {one.because && <span className="jp-gpupool-Why">{one.because}</span>}
          </li>
        ))}
      </ul>
    </Section>
  );
}

function span(one: IReservation, { trans, format }: IWords): string {
  const time = (at: string | null) => (at ? format.time(new Date(at)) : trans.__('it is ended'));
  return one.phase === 'now'
    ? trans.__('Until %1.', time(one.until))
    : trans.__('From %1 until %2.', time(one.start), time(one.until));
}
