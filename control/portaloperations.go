package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// sessionErrors are the statuses of every operation with a session token.
var sessionErrors = []int{401, 403, 429, 500, 501, 503}

// onPortal is an operation on links with a session token in place of the key.
func onPortal(o huma.Operation) huma.Operation {
	o.OperationID = "portal" + strings.ToUpper(o.OperationID[:1]) + o.OperationID[1:]
	o.Path, o.Tags, o.Security = "/portal"+o.Path, []string{tagPortal}, withSessionToken()
	for status, response := range responses(sessionErrors) {
		o.Responses[status] = response
	}
	return o
}

func showOrganizationOperation() huma.Operation {
	return huma.Operation{
		OperationID: "showOrganization", Method: http.MethodGet, Path: "/portal/organization", Tags: []string{tagPortal},
		Summary:     "Read the organization, what its plan has and what is used of it",
		Description: "For members.",
		Security:    withSessionToken(),
		Responses:   responses(sessionErrors).with(http.StatusOK, answered(schemaOrganization, exampleProfile(), "The organization.")),
	}
}

func setPlanOperation() huma.Operation {
	return huma.Operation{
		OperationID: "setPlan", Method: http.MethodPut, Path: "/portal/plan", Tags: []string{tagPortal},
		Summary: "Select a plan that costs nothing",
		Description: "For owners. One that is paid for is selected through checkout (422). Links beyond the quota of the new plan stay and resolve; " +
			"keys stop until a plan has them again. What is paid for a plan before is not ended by this.",
		Security:    withSessionToken(),
		RequestBody: body(schemaPlanChoice, planChoice{catalog.Free}, mediaJSON),
		Responses: responses(sessionErrors, 400, 408, 413, 415, 422).
			with(http.StatusOK, answered(schemaOrganization, exampleProfile(), "The organization with its new plan.")),
	}
}

func checkOutOperation() huma.Operation {
	const url = "https://billing.example.com/checkout?expires=1772370000&organization=0195514c-9a00-7000-8000-000000000001&plan=scale&signature=9f86d081884c7d65"
	return huma.Operation{
		OperationID: "checkOut", Method: http.MethodPost, Path: billingPath, Tags: []string{tagPortal},
		Summary: "Begin to pay for a plan",
		Description: "For owners. Send the browser to the URL of the answer within an hour. For the page there: its parameters are organization, " +
			"plan, expires (Unix seconds) and, at the end, signature: the HMAC-SHA256 in hex of the URL before &signature=.",
		Security:    withSessionToken(),
		RequestBody: body(schemaPlanChoice, planChoice{catalog.Scale}, mediaJSON),
		Responses: responses(sessionErrors, 400, 408, 413, 415).
			with(http.StatusOK, answered(schemaCheckout, checkedOut{url}, "Where to pay.")),
	}
}

func getAppConfigOperation() huma.Operation {
	return huma.Operation{
		OperationID: "getAppConfig", Method: http.MethodGet, Path: "/portal/app-config", Tags: []string{tagPortal},
		Summary:     "Read how the organization's apps are opened",
		Description: "For members.",
		Security:    withSessionToken(),
		Responses:   responses(sessionErrors).with(http.StatusOK, answered(schemaAppConfig, exampleAppConfig(), "The app config; all null when there never was one.")),
	}
}

func putAppConfigOperation() huma.Operation {
	return huma.Operation{
		OperationID: "putAppConfig", Method: http.MethodPut, Path: "/portal/app-config", Tags: []string{tagPortal},
		Summary: "Set how the organization's apps are opened",
		Description: "For administrators. It replaces the whole app config: what is absent is cleared. One of ios, android and fallbackUrl has to be " +
			"set before the first link is made. Once the answer says that it is propagated, every edge goes by it.",
		Security:    withSessionToken(),
		RequestBody: body(schemaAppConfigPut, exampleAppConfig(), mediaJSON),
		Responses: responses(sessionErrors, 400, 408, 413, 415).
			with(http.StatusOK, propagated(answered(schemaAppConfig, exampleAppConfig(), "The app config as it is now."))),
	}
}

func listKeysOperation() huma.Operation {
	masked := func(tier apikey.Tier) *maskedKey {
		return &maskedKey{apikey.Prefix(tier), apikey.Prefix(tier) + "…k3Qz"}
	}
	return huma.Operation{
		OperationID: "listKeys", Method: http.MethodGet, Path: "/portal/api-keys", Tags: []string{tagPortal},
		Summary:     "List the API keys in their masked form",
		Description: "For administrators. Without the feature api_access they are locked. A tier of which no key was ever made is null.",
		Security:    withSessionToken(),
		Responses: responses(sessionErrors).
			with(http.StatusOK, answered(schemaKeys, keyListing{SDKKey: masked(apikey.Client), ServerKey: masked(apikey.Server)}, "The keys.")),
	}
}

func regenerateKeyOperation() huma.Operation {
	made := store.NewKey{
		Tier: apikey.Server, RawKey: apikey.Prefix(apikey.Server) + "…", Prefix: apikey.Prefix(apikey.Server),
		DisplayKey: apikey.Prefix(apikey.Server) + "…k3Qz", CreatedAt: exampleLink().CreatedAt,
	}
	grace := body(schemaGrace, graceExample{3600}, mediaJSON)
	grace.Required = false
	return huma.Operation{
		OperationID: "regenerateKey", Method: http.MethodPost, Path: "/portal/api-keys/{tier}/regenerate", Tags: []string{tagPortal},
		Summary: "Make a new API key",
		Description: "For administrators. The raw key is in this answer and nowhere else. The key before it stops at once, or after graceSeconds; " +
			"of three, the oldest stops at once. 10 attempts an hour and organization, whatever comes of them.",
		Security: withSessionToken(),
		Parameters: []*huma.Param{{Name: "tier", In: "path", Required: true, Description: "SERVER for link management, CLIENT for the SDK.",
			Schema: tierSchema()}},
		RequestBody: grace,
		Responses: responses(sessionErrors, 400, 402, 408, 413, 415).
			with(http.StatusOK, answered(schemaNewKey, made, "The new key.")),
	}
}

func listDomainsOperation() huma.Operation {
	return huma.Operation{
		OperationID: "listDomains", Method: http.MethodGet, Path: "/portal/domains", Tags: []string{tagPortal},
		Summary:     "List the domains",
		Description: "For members. The default domain comes first, then the custom ones, the oldest first.",
		Security:    withSessionToken(),
		Responses: responses(sessionErrors).with(http.StatusOK, answered(schemaDomainList,
			domainList{Data: []ownDomain{{Domain: exampleLinkWithDomain().Domain}, exampleDomain(catalog.DomainVerified)}}, "The domains.")),
	}
}

func addDomainOperation() huma.Operation {
	return huma.Operation{
		OperationID: "addDomain", Method: http.MethodPost, Path: "/portal/domains", Tags: []string{tagPortal},
		Summary: "Add a custom domain",
		Description: fmt.Sprintf("For administrators, with the feature custom_domains. Nothing resolves on it before it is verified, and until then it keeps "+
			"nobody else from the host: it belongs to the organization that verifies it first (409 from then on). At most %d.", store.MaxDomains),
		Security:    withSessionToken(),
		RequestBody: body(schemaHostChoice, hostChoice{"go.example.com"}, mediaJSON),
		Responses: responses(sessionErrors, 400, 402, 408, 409, 413, 415).
			with(http.StatusCreated, answered(schemaOwnDomain, exampleDomain(catalog.DomainPending), "The domain, and the DNS record to set.")),
	}
}

func deleteDomainOperation() huma.Operation {
	return huma.Operation{
		OperationID: "deleteDomain", Method: http.MethodDelete, Path: "/portal/domains/{id}", Tags: []string{tagPortal},
		Summary:     "Remove a custom domain",
		Description: "For administrators. Not while it has links (409).",
		Security:    withSessionToken(),
		Parameters:  []*huma.Param{domainParameter()},
		Responses: responses(sessionErrors, 400, 404, 409).
			with(http.StatusOK, propagated(answered(schemaDeletion, deletion{ID: exampleLink().DomainID, Deleted: true}, "The domain is gone."))),
	}
}

func verifyDomainOperation() huma.Operation {
	return huma.Operation{
		OperationID: "verifyDomain", Method: http.MethodPost, Path: "/portal/domains/{id}/verify", Tags: []string{tagPortal},
		Summary: "Look for the DNS record of a custom domain",
		Description: "For administrators, with the feature custom_domains. The domain is verified from then on, or still pending, which is no error: " +
			"message tells what is missing. DNS gets 5 seconds.",
		Security:   withSessionToken(),
		Parameters: []*huma.Param{domainParameter()},
		Responses: responses(sessionErrors, 400, 402, 404, 409).
			with(http.StatusOK, propagated(answered(schemaJudgement, judgement{ownDomain: exampleDomain(catalog.DomainVerified)}, "The domain as it is now."))),
	}
}

func listAuditOperation() huma.Operation {
	id := exampleLink().ID
	entry := store.AuditEntry{
		ID: "0195514c-9a00-7000-8000-000000000003", At: exampleLink().CreatedAt, Actor: store.AuditActor{Type: store.ActorUser, ID: new("user_29w")},
		Action: store.LinkDeleted, Target: store.AuditTarget{Type: "link", ID: id}, RequestID: new("8f0c5f0e"), Detail: []byte(`{"shortCode":"k7m2p9xw"}`),
	}
	return huma.Operation{
		OperationID: "listAudit", Method: http.MethodGet, Path: "/portal/audit-log", Tags: []string{tagPortal},
		Summary: "List who changed what",
		Description: fmt.Sprintf("For administrators. The newest first. Every change is there for 400 days, whoever made it, with the whole address it came from; "+
			"total counts to %d at most, and what is older is found with until.", store.MaxAudited),
		Security: withSessionToken(),
		Parameters: []*huma.Param{
			pageParameter(), limitParameter("Entries on a page."),
			parameter("since", instant(""), "Only changes at this time and later."),
			parameter("until", instant(""), "Only changes before this time."),
		},
		Responses: responses(sessionErrors, 400).
			with(http.StatusOK, answered(schemaAuditPage, auditPage{Data: []store.AuditEntry{entry}, Total: 1, Page: 1, Limit: defaultLimit}, "A page of changes.")),
	}
}

func withSessionToken() []map[string][]string { return []map[string][]string{{securitySession: {}}} }

func domainParameter() *huma.Param {
	return &huma.Param{Name: "id", In: "path", Required: true, Description: "Identifier of the domain.", Schema: identifier("")}
}

// planChoice, graceExample and hostChoice are bodies in the document.
type (
	planChoice struct {
		Plan catalog.Plan `json:"plan"`
	}
	graceExample struct {
		GraceSeconds int `json:"graceSeconds"`
	}
	hostChoice struct {
		Host string `json:"host"`
	}
)

func exampleProfile() profile {
	return profileOf(catalog.Organization{
		ID: exampleLink().OrganizationID, OrgKey: "ab12", Name: "Example", ExternalID: new("org_29w"), Plan: new(catalog.Free),
	}, 12)
}

func exampleAppConfig() catalog.AppConfig {
	return catalog.AppConfig{
		IOS:         &catalog.IOSApp{BundleID: new("com.example.app"), TeamID: new("ABCDE12345"), AppStoreID: new("123456789"), Scheme: new("example")},
		FallbackURL: new("https://example.com/"),
	}
}

func exampleDomain(status catalog.DomainStatus) ownDomain {
	return ownDomainOf(store.OwnDomain{Token: "JBSWY3DPEHPK3PXPJBSWY3DPEH", Domain: catalog.Domain{
		ID: "0195514c-9a00-7000-8000-000000000004", Host: "go.example.com", IsCustom: true, Status: status, CreatedAt: exampleLink().CreatedAt,
	}})
}
