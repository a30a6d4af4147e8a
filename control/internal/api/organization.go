package api

import (
	"net/http"

	"deeplink/shared/catalog"
)

// organizationResponse is an organization as the portal returns it.
type organizationResponse struct {
	ID         string        `json:"id"`
	OrgKey     string        `json:"orgKey"`
	Name       string        `json:"name"`
	ExternalID *string       `json:"externalId"`
	Plan       *catalog.Plan `json:"plan"`
	Suspended  bool          `json:"suspended"`
	Features   features      `json:"features"`
	Links      usage         `json:"links"`
}

// features are those that a plan may include.
type features struct {
	APIAccess     bool `json:"api_access"`
	CustomDomains bool `json:"custom_domains"`
}

// usage is how much of a quota is used. Quota is nil when the plan has none.
type usage struct {
	Used  int64  `json:"used"`
	Quota *int64 `json:"quota"`
}

// showOrganization serves GET /portal/organization.
func (s *Server) showOrganization(x *requestState, r *http.Request, organization catalog.Organization) error {
	used, err := s.Store.LinkUsage(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, organizationResponseOf(organization, used))
}

func organizationResponseOf(o catalog.Organization, used int64) organizationResponse {
	var terms catalog.Terms // without a plan nothing is included
	if o.Plan != nil {
		terms = o.Plan.Terms()
	}
	p := organizationResponse{
		ID: o.ID, OrgKey: o.OrgKey, Name: o.Name, ExternalID: o.ExternalID, Plan: o.Plan, Suspended: o.Suspended,
		Features: features{terms.APIAccess, terms.CustomDomains}, Links: usage{Used: used},
	}
	if terms.Links != catalog.Unlimited {
		p.Links.Quota = &terms.Links
	}
	return p
}
