// @actions/core imports @actions/exec only for its description of the platform, which this project never uses. The
// original loads `assert` and `fs/promises` of Node.js into every run.

export function getExecOutput() {
  throw new Error('The bundle does not contain @actions/exec.')
}
