// The original loads `assert` of Node.js. Only a run with a proxy needs the original, so only such a run loads it.

for (const name of ['httpOverHttp', 'httpsOverHttp', 'httpOverHttps', 'httpsOverHttps']) {
  exports[name] = options => require('./lib/tunnel')[name](options)
}
