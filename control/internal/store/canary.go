package store

// CanaryOrganization is the external id of the organization that the canaries of all controls share. No session token may name it: an
// identity provider may let its users choose the name of their organization.
const CanaryOrganization = "deeplink-canary"
