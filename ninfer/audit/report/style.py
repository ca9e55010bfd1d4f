"""Colours and layout of the page, light and dark by what the reader's system prefers."""

from typing import Final

CSS: Final = """
:root {
  color-scheme: light dark;
  --ground: #f7f6f3; --sheet: #ffffff; --text: #1c2124; --soft: #566066; --line: #d9d4ca;
  --good: #0b6e4f; --bad: #a3292f; --band: #a3292f33;
  --one: #0b7a75; --two: #b06a00; --three: #3a5bb8; --four: #7d3fa0; --five: #5c6b1e;
  --six: #9a3412;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #131516; --sheet: #1b1e20; --text: #e7e9e8; --soft: #a3acaf; --line: #363c40;
    --good: #6fd3a8; --bad: #ff9a94; --band: #ff9a9433;
    --one: #4fc9bd; --two: #f2b84b; --three: #9db4ff; --four: #d6a3f0; --five: #c3d36f;
    --six: #ffb08a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1360px; padding: 24px 18px 60px; background: var(--ground);
  color: var(--text); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.7rem; margin: 0 0 4px; } h2 { margin: 34px 0 8px; font-size: 1.25rem; }
h3 { margin: 0; font-size: 1rem; } p { margin: 4px 0; }
.verdict { font-size: 1.15rem; } .soft, figcaption p { color: var(--soft); font-size: 0.9rem; }
.scroll { overflow-x: auto; background: var(--sheet); border: 1px solid var(--line);
  border-radius: 10px; }
.scroll:focus-visible, summary:focus-visible { outline: 2px solid var(--one); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
caption { text-align: left; padding: 10px 12px 4px; color: var(--soft); }
th, td { padding: 6px 10px; text-align: right; border-top: 1px solid var(--line);
  font-variant-numeric: tabular-nums; white-space: nowrap; }
th:first-child, td.why, th.why { text-align: left; } td.why { white-space: normal; }
thead th { border-top: 0; } tbody th { font-weight: 600; text-align: left; }
.yes { color: var(--good); } .no { color: var(--bad); font-weight: 600; }
.plots { display: grid; gap: 16px; 
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 520px), 1fr)); }
figure { margin: 0; background: var(--sheet); border: 1px solid var(--line); border-radius: 10px;
  padding: 12px 14px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 50%; margin-right: 6px;
  background: var(--mark, var(--soft)); }
.key.square { border-radius: 0; } .key.written { height: 3px; border-radius: 0; }
.key.cross { border-radius: 0; clip-path: polygon(20% 0, 50% 30%, 80% 0, 100% 20%, 70% 50%,
  100% 80%, 80% 100%, 50% 70%, 20% 100%, 0 80%, 30% 50%, 0 20%); }
.key.loop { border-radius: 0; background: var(--band); border: 1px solid var(--bad); }
svg { width: 100%; height: auto; display: block; margin-top: 6px; }
svg text { fill: var(--soft); font-size: 11px; } svg .title { fill: var(--text); font-size: 12px; }
.end { text-anchor: end; } .mid { text-anchor: middle; }
.grid { stroke: var(--line); stroke-width: 1; fill: none; }
.even { stroke: var(--soft); stroke-dasharray: 5 4; fill: none; }
.written { stroke: var(--one); stroke-width: 2; fill: none; --mark: var(--one); }
svg .loop { fill: var(--band); stroke: var(--bad); }
.one { --mark: var(--one); } .two { --mark: var(--two); } .three { --mark: var(--three); }
.four { --mark: var(--four); } .five { --mark: var(--five); } .six { --mark: var(--six); }
.bad { --mark: var(--bad); }
svg circle, svg rect.square { fill: var(--mark); fill-opacity: 0.75; stroke: var(--sheet); }
svg path.cross { stroke: var(--mark); stroke-width: 2; fill: none; }
details { border-top: 1px solid var(--line); padding: 6px 12px; }
details.scroll { margin: 8px 0; padding: 8px 12px; } summary { cursor: pointer; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.82rem; margin: 6px 0;
  max-height: 320px; overflow: auto; }
@media print { .scroll { overflow: visible; } body { max-width: none; } }
"""
