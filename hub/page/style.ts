/** The page's only style sheet. Every text color has a contrast of at least 4.5 to 1 on every background. */
export const STYLE = `
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --text: #1b2027; --soft: #57606b; --line: #e1e4e9; --field: #7c8591;
  --link: #0a56c2; --good: #17692f; --good-back: #e3f3e7; --bad: #b3261e; --bad-back: #fdecea; --back: #85480a;
  --back-back: #fbf0df; --tint: #fdf8f7;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1217; --card: #161b22; --text: #e4e9ef; --soft: #9ba6b2; --line: #2a313a; --field: #6f7a87;
    --link: #84b9ff; --good: #5fd07e; --good-back: #14301e; --bad: #ff8a80; --bad-back: #3b1a1a; --back: #efb366;
    --back-back: #35260f; --tint: #1b1a1e;
  }
}
* { box-sizing: border-box; }
body {
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; color: var(--text);
  background: var(--page); max-width: 66rem; margin: 0 auto; padding: 2.25rem 1.25rem 4rem; overflow-wrap: anywhere;
}
h1 { font-size: 1.6rem; letter-spacing: -.015em; margin: 0; }
h2 { font-size: 1.05rem; margin: 2.75rem 0 .6rem; }
p { margin: 0; }
a { color: var(--link); text-underline-offset: .2em; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 4px; }
abbr { text-decoration: underline dotted var(--soft); text-underline-offset: .2em; }
.soft { color: var(--soft); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 12px; overflow: clip; }
.empty { padding: 1.1rem 1.25rem; color: var(--soft); }
.hidden { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

header { display: flex; flex-wrap: wrap; align-items: baseline; justify-content: space-between; gap: .25rem 1rem; }
.counts { font-size: 1.05rem; margin-top: .5rem; }
.counts a, .counts strong { font-weight: 650; }
.listings { list-style: none; margin: .35rem 0 0; padding: 0; color: var(--soft); }
.listings b { color: var(--text); font-weight: 600; }

form { display: flex; flex-wrap: wrap; align-items: center; gap: .6rem .9rem; margin: 1.5rem 0 .8rem; }
input[type=search] {
  flex: 1 1 14rem; min-width: 0; font: inherit; color: inherit; background: var(--card); border: 1px solid var(--field);
  border-radius: 8px; padding: .45rem .75rem;
}
input::placeholder { color: var(--soft); opacity: 1; }
input[type=checkbox] { width: 1.05rem; height: 1.05rem; margin: 0; accent-color: var(--link); }
label { display: inline-flex; align-items: center; gap: .45rem; }
button {
  font: inherit; font-weight: 600; color: var(--card); background: var(--link); border: 1px solid var(--link);
  border-radius: 8px; padding: .45rem 1rem; cursor: pointer;
}

table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: baseline; padding: .7rem .75rem; overflow: clip; font-weight: 400; }
th:first-child, td:first-child { padding-left: 1.25rem; }
th:last-child, td:last-child { padding-right: 1.25rem; }
thead th { font-size: .82rem; color: var(--soft); padding-block: .65rem; }
tbody { border-top: 1px solid var(--line); }
tbody th { font-weight: 600; }
tbody.tinted { background: var(--tint); }
.sign i {
  display: inline-block; width: 1.45rem; text-align: center; border-radius: 999px; font: 700 .85rem/1.45rem system-ui,
  sans-serif;
}
.good i { color: var(--good); background: var(--good-back); } .bad i { color: var(--bad); background: var(--bad-back); }
.back i { color: var(--back); background: var(--back-back); }
.version { font-weight: 600; font-variant-numeric: tabular-nums; }
.note { display: block; font-size: .84rem; font-weight: 400; color: var(--soft); }
time { white-space: nowrap; }
.when { color: var(--soft); text-align: right; }
.attempt td { padding-top: 0; }
.bad .words { color: var(--bad); font-weight: 600; } .back .words { color: var(--back); font-weight: 600; }
.tag {
  display: inline-block; font-size: .78rem; line-height: 1.5; color: var(--soft); border: 1px solid var(--field);
  border-radius: 999px; padding: 0 .5rem; white-space: nowrap;
}
.versions { color: var(--soft); }

nav { display: flex; flex-wrap: wrap; justify-content: space-between; gap: .5rem 1rem; margin: .9rem .25rem 0; }
nav span.links { display: inline-flex; gap: 1.1rem; }

@media (min-width: 48.01rem) {
  .digest { white-space: nowrap; }
  .fleet { table-layout: fixed; }
  .sign { width: 3.75rem; }
  .what { width: 26%; }
  .runs { width: 18%; }
  .when { width: 21%; }
}
@media (max-width: 48rem) {
  body { padding: 1.5rem .9rem 3rem; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  table, tbody { display: block; }
  tbody { padding: .8rem .9rem; }
  thead + tbody { border-top: 0; }
  tr { display: block; }
  .fleet tr { display: grid; grid-template-columns: 2.1rem fit-content(50%) minmax(0, 1fr) auto; column-gap: .5rem; }
  .fleet tr > * { grid-column: 2 / 5; }
  .fleet tr > .sign { grid-area: 1 / 1; }
  .fleet tr > .host { grid-area: 1 / 2 / 2 / 4; }
  .fleet tr > .when { grid-area: 1 / 4; max-width: 7.5rem; text-align: right; overflow-wrap: normal; }
  .fleet tr > .what { grid-area: 2 / 2; }
  .fleet tr > .runs { grid-area: 2 / 3 / 3 / 5; }
  .fleet tr.attempt { margin-top: .3rem; }
  th, td, th:first-child, td:first-child, th:last-child, td:last-child { padding: 0; display: block; text-align: left; }
  td[data-label]::before { content: attr(data-label) " "; color: var(--soft); }
  label { min-height: 2rem; }
}
@media (forced-colors: active) { .sign i { border: 1px solid; } }
`
