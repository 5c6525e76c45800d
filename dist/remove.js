let ended = false
const found = process.versions.node
if (parseInt(found, 10) < 24) {
  console.error('Error: remove.js needs Node.js 24, but ' + process.execPath + ' is ' + found + ': run it with externals/node24/bin/node of the runner, or node_modules/.bin/node of a checkout.')
  process.exitCode = 1
} else if (/^(--help|-h)$/.test(process.argv[2])) {
  console.log("remove.js is the program of a GitHub Action. A self-hosted runner starts it.\nIts inputs are environment variables; remove/action.yml lists them. Required: INPUT_ID, INPUT_PROJECT-ROOT.\nTo deploy your own plugin, service or project on this machine: npm run try -- --from FOLDER")
} else {
  process.once('exit', code => { if (!ended && code === 0) process.exitCode = 13 })
  require('./start.js').start(__dirname, 'remove').then(() => { ended = true })
}
