/**
 * What the user's groups are owed and use, and the user's own part.
 */
import * as React from 'react';

import { IGroupQuota } from '../api';
import { IWords, Trans } from '../words';
import { Section } from './section';

/** What each of the user's groups may use and does, and the user's own part. */
export function Quota(props: IWords & { groups: IGroupQuota[] }): JSX.Element {
  const { trans, groups } = props;
  return (
    <Section title={trans.__('Quota')}>
      {groups.length === 0 && (
        <p className="jp-gpupool-Quiet">
          {trans.__('You are in no group of this pool: you can use CPUs, but no GPU.')}
        </p>
      )}
      {groups.map(group => (
        <Group key={group.name} group={group} trans={trans} format={props.format} />
      ))}
    </Section>
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
  trans: Trans;
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
