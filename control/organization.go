package main

import (
	"net/http"

	"deeplink/shared/catalog"
)

// profile is an organization as the portal shows it (decisions.md 6).
type profile struct {
	ID         string        `json:"id"`
	OrgKey     string        `json:"orgKey"`
	Name       string        `json:"name"`
	ExternalID *string       `json:"externalId"`
	Plan       *catalog.Plan `json:"plan"`
	Suspended  bool          `json:"suspended"`
	Features   features      `json:"features"`
	Links      usage         `json:"links"`
}

// features are those that a plan may have.
type features struct {
	APIAccess     bool `json:"api_access"`
	CustomDomains bool `json:"custom_domains"`
}

// usage is how much of a quota is used. The quota is nil when there is none.
type usage struct {
	Used  int64  `json:"used"`
	Quota *int64 `json:"quota"`
}

// showOrganization answers GET /portal/organization.
func (s *server) showOrganization(x *exchange, r *http.Request, organization catalog.Organization) error {
	used, err := s.store.LinkUsage(r.Context(), organization.ID)
	if err != nil {
		return err
	}
	return writeJSON(x, http.StatusOK, profileOf(organization, used))
}

func profileOf(o catalog.Organization, used int64) profile {
	var terms catalog.Terms // without a plan there is nothing
	if o.Plan != nil {
		terms = o.Plan.Terms()
	}
	p := profile{
		ID: o.ID, OrgKey: o.OrgKey, Name: o.Name, ExternalID: o.ExternalID, Plan: o.Plan, Suspended: o.Suspended,
		Features: features{terms.APIAccess, terms.CustomDomains}, Links: usage{Used: used},
	}
	if terms.Links != catalog.Unlimited {
		p.Links.Quota = &terms.Links
	}
	return p
}
