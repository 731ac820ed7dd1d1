/** The styles of the charts, added to the page once. They use the variables of dashboard.css where it has them. */

const STYLES = `
.chart { display: flex; flex-direction: column; position: relative; min-width: 0; font-variant-numeric: tabular-nums; }
.chart-plot { position: relative; flex: 1 1 auto; min-width: 0; touch-action: pan-y; user-select: none; -webkit-user-select: none; border-radius: 4px; }
.chart-plot:focus-visible { outline: 2px solid var(--accent, #2f5fde); outline-offset: 2px; }
.chart-plot canvas { position: absolute; inset: 0; width: 100%; height: 100%; display: block; }
.chart-plot canvas + canvas { pointer-events: none; }
.chart-hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.chart-tools { position: absolute; top: 0; right: 0; display: flex; gap: 4px; opacity: 0; z-index: 2; }
.chart:hover > .chart-tools, .chart:focus-within > .chart-tools { opacity: 1; }
@media print { .chart-tools, .chart-search { display: none !important; } }
.chart button { font: inherit; font-size: 12px; line-height: 16px; padding: 2px 8px; color: var(--text, #1b2330); background: var(--surface, #fff); border: 1px solid var(--line, #dfe3e9); border-radius: 4px; cursor: pointer; }
.chart button:hover { border-color: var(--text-faint, #5d6877); }
.chart button:focus-visible, .chart input:focus-visible { outline: 2px solid var(--accent, #2f5fde); outline-offset: 1px; }
.chart button[hidden] { display: none; }
.chart-tip { position: absolute; z-index: 3; pointer-events: none; max-width: min(420px, 90%); padding: 6px 8px; font-size: 12px; line-height: 16px; color: var(--text, #1b2330); background: var(--surface, #fff); border: 1px solid var(--line, #dfe3e9); border-radius: 6px; box-shadow: 0 4px 16px rgb(0 0 0 / 0.16); }
.chart-tip[hidden] { display: none; }
.chart-tip > strong { display: block; font-weight: 600; overflow-wrap: anywhere; }
.chart-row { display: flex; align-items: baseline; gap: 6px; }
.chart-row > span:nth-child(2) { flex: 1; min-width: 0; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--text-faint, #5d6877); }
.chart-row.is-near { font-weight: 600; }
.chart-row.is-near > span:nth-child(2) { color: inherit; }
.chart-swatch { flex: none; display: inline-block; width: 8px; height: 8px; border-radius: 2px; }
.chart .chart-legend { display: flex; flex-wrap: wrap; gap: 2px; max-height: 74px; overflow-y: auto; margin-top: 4px; }
.chart .chart-legend button { display: inline-flex; align-items: center; gap: 6px; max-width: 280px; border-color: transparent; background: none; }
.chart .chart-legend button:hover { background: var(--line, #dfe3e9); }
.chart .chart-legend button[aria-pressed=false] { color: var(--text-faint, #5d6877); text-decoration: line-through; }
.chart .chart-legend button[aria-pressed=false] .chart-swatch { opacity: 0.25; }
.chart-name { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.chart-table { max-height: 320px; overflow: auto; margin-top: 8px; border: 1px solid var(--line, #dfe3e9); border-radius: 4px; }
.chart-table table { border-collapse: collapse; width: 100%; font-size: 12px; }
.chart-table th, .chart-table td { padding: 2px 8px; text-align: right; white-space: nowrap; }
.chart-table th:first-child, .chart-table td:first-child { text-align: left; }
.chart-table thead th { position: sticky; top: 0; background: var(--surface, #fff); box-shadow: 0 1px var(--line, #dfe3e9); }
.chart-table caption { padding: 4px 8px; text-align: left; color: var(--text-faint, #5d6877); }
.chart-search { display: flex; align-items: center; gap: 8px; margin-bottom: 4px; font-size: 12px; color: var(--text-faint, #5d6877); }
.chart-search input { font: inherit; width: 220px; max-width: 50%; padding: 3px 8px; color: var(--text, #1b2330); background: var(--surface, #fff); border: 1px solid var(--line, #dfe3e9); border-radius: 4px; }
.chart-details { min-height: 20px; margin-top: 4px; font-size: 12px; line-height: 20px; color: var(--text, #1b2330); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bars { width: 100%; border-collapse: collapse; table-layout: auto; font-size: 13px; font-variant-numeric: tabular-nums; }
.bars th { font-weight: 400; text-align: left; padding: 2px 12px 2px 0; max-width: 320px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bars td { padding: 2px 0; }
.bars td:last-child { text-align: right; padding-left: 12px; white-space: nowrap; width: 1%; }
.bars-track { display: flex; height: 12px; gap: 1px; width: 100%; min-width: 60px; }
.bars-track > span { border-radius: 2px; min-width: 1px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.bars td:nth-child(2) { width: 100%; }
.bars-upright { display: flex; align-items: stretch; gap: 2px; height: 100%; overflow-x: auto; list-style: none; margin: 0; padding: 0; font-size: 12px; }
.bars-upright > li { flex: 1 1 0; min-width: 4px; display: flex; flex-direction: column; justify-content: flex-end; text-align: center; }
.bars-upright .bars-track { flex-direction: column-reverse; height: auto; flex: none; min-width: 0; }
.bars-upright .chart-name { flex: none; line-height: 18px; color: var(--text-faint, #5d6877); }
.breakdown-bar { display: flex; gap: 1px; height: 20px; overflow: hidden; border-radius: 4px; }
.breakdown-bar > span { min-width: 1px; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.breakdown-bar > span.is-near { filter: brightness(1.15); }
.breakdown-list { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 8px 0 0; padding: 0; list-style: none; font-size: 13px; font-variant-numeric: tabular-nums; }
.breakdown-list > li { display: inline-flex; align-items: center; gap: 6px; min-width: 0; }
.breakdown-list .faint { color: var(--text-faint, #5d6877); }
`;

/** Style sheets made by a script are allowed by the page's content security policy, inline styles are not. */
export function addStyles() {
  if (document.adoptedStyleSheets.some((sheet) => sheet.isOfCharts)) return;
  const sheet = Object.assign(new CSSStyleSheet(), { isOfCharts: true });
  sheet.replaceSync(STYLES);
  document.adoptedStyleSheets.push(sheet);
}
