/** How this action calls itself to a hub. */
export const USER_AGENT = 'hub-deploy'
