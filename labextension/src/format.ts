/**
 * Numbers and times as people of the user's language write them.
 */

/** Writes numbers and times for one language. */
export class Format {
  constructor(languageCode: string) {
    this.locale = supported(languageCode.replace('_', '-'));
    this.number = new Intl.NumberFormat(this.locale, { maximumFractionDigits: 3 });
    this.relative = new Intl.RelativeTimeFormat(this.locale, { numeric: 'auto' });
    this.percent = new Intl.NumberFormat(this.locale, { style: 'percent' });
  }

  /** Thousandths as a number: 1500 is "1.5". */
  milli(value: number): string {
    return this.number.format(value / 1000);
  }

  /** MiB as GiB. */
  memory(mib: number): string {
    return `${this.number.format(Math.round((10 * mib) / 1024) / 10)} GiB`;
  }

  /** A fraction as a percentage. */
  fraction(value: number): string {
    return this.percent.format(value);
  }

  /** A time of day; with its date when that is not today's. */
  time(at: Date): string {
    const clock: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
    const isToday = at.toDateString() === new Date().toDateString();
    const options = isToday ? clock : { weekday: 'short' as const, day: 'numeric' as const, month: 'short' as const, ...clock };
    return new Intl.DateTimeFormat(this.locale, options).format(at);
  }

  /** How long until a time from now, roughly: "in 3 hours". */
  until(at: Date): string {
    const minutes = Math.round((at.getTime() - Date.now()) / 60000);
    if (Math.abs(minutes) < 90) {
      return this.relative.format(minutes, 'minute');
    }
    const hours = Math.round(minutes / 60);
    return Math.abs(hours) < 48
      ? this.relative.format(hours, 'hour')
      : this.relative.format(Math.round(hours / 24), 'day');
  }

  private readonly locale: string | undefined;
  private readonly number: Intl.NumberFormat;
  private readonly relative: Intl.RelativeTimeFormat;
  private readonly percent: Intl.NumberFormat;
}

/** The browser's own language where a code is unknown to it. */
function supported(locale: string): string | undefined {
  try {
    return Intl.DateTimeFormat.supportedLocalesOf(locale)[0];
  } catch {
    return undefined;
  }
}
