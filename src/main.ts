export { deploy } from './actions/deploy.ts'
export { deployPost } from './actions/deploy-post.ts'
export { project } from './actions/project.ts'
export { projectPost } from './actions/project-post.ts'

// When the runner goes away its end of our output closes; a deployment must not die of that in the middle.
process.stdout.on('error', () => {})
process.stderr.on('error', () => {})
