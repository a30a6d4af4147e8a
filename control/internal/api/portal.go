package api

import (
	"net/http"

	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// withPlan calls h for organizations with a plan.
func withPlan(h orgHandler) orgHandler { return withRequirement(requirePlan, h) }

// withRequirement calls h for organizations that meet the requirement, on arrival and again in the transaction of a write.
func withRequirement(require store.Requirement, h orgHandler) orgHandler {
	return func(x *requestState, r *http.Request, organization catalog.Organization) error {
		if err := require(organization); err != nil {
			return err
		}
		x.require = all(x.require, require)
		return h(x, r, organization)
	}
}
