/** What an operator calls the inputs with which a marketplace is asked, so that an error names those that there are. */
export interface InputNames {
  readonly hub: string
  readonly services: string
  readonly deployments: string
  readonly apiKey: string
  readonly signingSecret: string
  /** What says which plugin or service is asked for, as the start of a list that a base URL ends. */
  readonly subject: string
}

export const OWN_INPUTS: InputNames = {
  hub: 'hub-url',
  services: 'services-url',
  deployments: 'deployments-url',
  apiKey: 'api-key',
  signingSecret: 'signing-secret',
  subject: 'slug, kind, version',
}
