export { deploy, deployPost } from './actions/deploy.ts'
export { fleet } from './actions/fleet.ts'
export { project, projectPost } from './actions/project.ts'
export { recover } from './actions/recover.ts'
export { remove, removePost } from './actions/remove.ts'
export { rollback, rollbackPost } from './actions/rollback.ts'
export { status } from './actions/status.ts'
export { verify, verifyPost } from './actions/verify.ts'

// If the runner disappears, these streams fail. Their failure must not kill a deployment halfway.
process.stdout.on('error', () => {})
process.stderr.on('error', () => {})
