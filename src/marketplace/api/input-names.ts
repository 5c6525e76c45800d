/** The names of the inputs for a marketplace, so that an error names inputs that the running action has. */
export interface InputNames {
  readonly hub: string
  readonly services: string
  readonly deployments: string
  readonly apiKey: string
  readonly signingSecret: string
  /** The inputs that identify a plugin or service, as the start of a list that ends with a base URL's input. */
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
