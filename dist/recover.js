let ended = false
const found = process.versions.node
if (parseInt(found, 10) < 24) {
  console.error('Error: recover.js needs Node.js 24, but ' + process.execPath + ' is ' + found + ': run it with externals/node24/bin/node of the runner, or node_modules/.bin/node of a checkout.')
  process.exitCode = 1
} else {
  process.once('exit', code => { if (!ended && code === 0) process.exitCode = 13 })
  require('./start.js').start(__dirname, 'recover').then(() => { ended = true })
}
