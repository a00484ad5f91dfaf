import { LabIcon } from '@jupyterlab/ui-components';

/** A card with its fan, in the colours of JupyterLab's own icons. */
export const poolIcon = new LabIcon({
  name: 'jupyter-gpupool:pool',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M2 4h2v16H2zM5 6h16a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1H5zm2 2v7h13V8z" fill-rule="evenodd"/>
    <path d="M13.500 8.800a2.700 2.700 0 1 0 .001 0zm0 1.600a1.100 1.100 0 1 1-.001 0z" fill-rule="evenodd"/>
    <path d="M7 18h3v2H7zM12 18h6v2h-6z"/>
  </g>
</svg>`
});
