"""The style of every page: no font, picture or script from elsewhere; readable on a phone, in the dark and on paper."""

STYLE = """
:root{--ink:#222;--paper:#fff;--rule:#ddd;--dim:#57606a}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:var(--ink);
background:var(--paper)}
h1{font-size:1.5rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;
border-bottom:1px solid var(--rule)}th{font-weight:600}code{font-size:.9em;word-break:break-word;unicode-bidi:isolate}
.verdict{padding:.6rem 1rem;border-radius:.4rem;font-weight:600;color:#fff;overflow-wrap:anywhere}
.pass,.good{background:#1a7f37}.refused,.bad{background:#b42318}.undetermined,.no-verdict,.open{background:#9a6700}
.not-applicable,.not-run,.plain{background:#57606a}
.tag{color:#fff;border-radius:.3rem;padding:.05rem .45rem;white-space:nowrap;font-size:.85em}
svg:not(.plot){background:#f4f6f8}svg:not(.plot) rect{fill:#4a7ebb}svg:not(.plot) line{stroke:#b42318;stroke-width:1}
.small{color:var(--dim);font-size:.9em}
.scroll{overflow-x:auto;margin:.8rem 0}.scroll:focus-visible{outline:2px solid var(--dim)}
caption{text-align:left;color:var(--dim);font-size:.9em;padding-bottom:.2rem}
.number{text-align:right;font-variant-numeric:tabular-nums}td.number{white-space:nowrap}
dl{margin:.8rem 0}dl div{display:grid;grid-template-columns:minmax(9rem,18rem) 1fr;gap:0 1rem;padding:.25rem 0;
border-bottom:1px solid var(--rule)}dt{color:var(--dim)}dd{margin:0;min-width:0;overflow-wrap:anywhere}
figure{margin:1rem 0;max-width:32rem}figure svg{display:block;width:100%;height:auto}
figcaption{color:var(--dim);font-size:.9em}
summary{cursor:pointer;padding:.3rem 0}
@media (max-width:40rem){
body{margin:1rem auto;padding:0 .8rem}h1{font-size:1.25rem}th,td{padding:.3rem .4rem}
dl div{grid-template-columns:1fr}
.stacked,.stacked caption,.stacked tbody,.stacked tr,.stacked th,.stacked td{display:block}
.stacked thead{position:absolute;clip-path:inset(50%);height:1px;width:1px;overflow:hidden}
.stacked tr{border-bottom:1px solid var(--rule);padding:.3rem 0}.stacked th,.stacked td{border:0;padding:.1rem 0}
.stacked td{display:grid;grid-template-columns:10rem 1fr;gap:.5rem;text-align:left;white-space:normal}
.stacked th{text-align:left}.stacked th.number::before{content:attr(data-name) " "}
.stacked td::before{content:attr(data-name);color:var(--dim)}.stacked td:empty{display:none}
}
@media screen and (prefers-color-scheme:dark){
:root{--ink:#d7dce2;--paper:#15181c;--rule:#333;--dim:#9aa4af}svg:not(.plot){background:#20252b}
}
@media print{
@page{margin:15mm}
body{font-size:9pt;margin:0;max-width:none;padding:0}h2{margin-top:1.2rem}th,td{padding:.1rem .8rem .1rem 0}
dl div{padding:.1rem 0}.scroll{overflow:visible}
.verdict,.tag{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2,caption,figcaption,summary{break-after:avoid}tr,figure,dl div{break-inside:avoid}figure{max-width:10cm}
}
"""
