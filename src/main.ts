export { deploy } from './actions/deploy.ts'
export { deployPost } from './actions/deploy-post.ts'
