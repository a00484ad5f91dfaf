/** English as it is written in the source: what the components get in place of a translation. */
import { Format } from '../src/format';
import { IWords } from '../src/words';

function fill(text: string, values: unknown[]): string {
  return text.replace(/%(\d)/g, (_, number) => String(values[Number(number) - 1]));
}

export const words: IWords = {
  trans: {
    __: (text: string, ...values: unknown[]) => fill(text, values),
    _n: (one: string, many: string, count: number, ...values: unknown[]) =>
      fill(count === 1 ? one : many, [count, ...values])
  },
  format: new Format('en')
};
