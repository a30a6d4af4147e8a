package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/control/internal/relay"
	"deeplink/shared/catalog"
	"deeplink/shared/envelope"
)

// document returns the OpenAPI 3.1 document of the routes, and of what the edges at linkBase serve to the public.
func document(routes []route, linkBase string) ([]byte, error) {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	maps.Copy(registry.Map(), schemas())
	maps.Copy(registry.Map(), portalSchemas())
	maps.Copy(registry.Map(), sdkSchemas())
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:   "Deeplink",
			Version: version,
			Description: "Create, read, change and delete deep links. Every error is the same JSON envelope. Limits are counted in sliding " +
				"windows per API key: 1,000 reads and 100 writes a second.",
		},
		Servers: []*huma.Server{{URL: "/", Description: "This service."}},
		Tags: []*huma.Tag{
			{Name: tagLinks, Description: "Deep links of an organization, with its server key."},
			{Name: tagSDK, Description: "What apps report, with the client key of their organization."},
			{Name: tagPortal, Description: "The organization's own affairs, with a session token of its identity provider. 30 requests a second and IP address."},
			{Name: tagService, Description: "The service itself."},
			{Name: tagEdge, Description: "What short URLs answer to the public. On a custom domain they have no organization key: https://{host}/{shortCode}."},
		},
		Components: &huma.Components{
			Schemas:         registry,
			Responses:       errorResponses(),
			Headers:         sharedHeaders(),
			SecuritySchemes: securitySchemes(),
		},
	}
	for i := range routes {
		if routes[i].OperationID != "" {
			api.AddOperation(&routes[i].Operation)
		}
	}
	addEdge(api, linkBase)

	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(api); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

func sharedHeaders() map[string]*huma.Header {
	return map[string]*huma.Header{
		"RequestId": {Description: "The X-Request-Id of the request when it sent a valid one, else a new UUID.", Schema: text("")},
		"Version":   {Description: "Version of the interface.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{version}}},
		"Propagation": {
			Description: "complete: no edge answers a later request as it was before this change. pending: an edge that is cut off could not be heard of; it follows within minutes.",
			Schema:      &huma.Schema{Type: huma.TypeString, Enum: []any{string(relay.Complete), string(relay.Pending)}},
		},
	}
}

// errorResponses are the envelopes, one per status.
func errorResponses() map[string]*huma.Response {
	all := make(map[string]*huma.Response)
	add := func(status int, description string, p problem, code string) {
		e := envelope.New(status, p.message, "/links", "8f0c5f0e", time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		e.Details, e.Code, e.Quota, e.Feature, e.BillingEndpoint = p.details, p.code, p.quota, p.feature, p.billingEndpoint
		response := described(description, map[string]*huma.MediaType{envelope.ContentType: {
			Schema: reference(schemaError), Examples: map[string]*huma.Example{code: {Value: e}},
		}})
		if old := all[strconv.Itoa(status)]; old != nil {
			old.Content[envelope.ContentType].Examples[code] = &huma.Example{Value: e}
			return
		}
		all[strconv.Itoa(status)] = response
	}
	add(400, "Validation failed, or the request is malformed.", validationFailed([]envelope.Detail{{Field: "path", Message: "path is required"}}), "validation")
	add(429, "Too many requests. The message says when to retry; no header does.", problemOf(errRateLimited{2 * time.Second}), "rateLimited")
	add(500, "Our fault. Retry with backoff and quote the request id.", internal, "internal")
	for _, row := range problems {
		name := row.code
		if name == "" {
			name = strconv.Itoa(row.status)
		}
		add(row.status, http.StatusText(row.status), row.problem, name)
	}
	all["401"].Headers["WWW-Authenticate"] = &huma.Header{Description: "Bearer", Schema: text("")}
	all["404"].Headers[relay.Header] = &huma.Header{Ref: "#/components/headers/Propagation"}
	return all
}

// addEdge describes the public routes of the edges (decisions.md 2 and 3).
func addEdge(api *huma.OpenAPI, linkBase string) {
	edges := []*huma.Server{{URL: linkBase, Description: "The edges."}}
	link := []*huma.Param{
		{Name: "orgKey", In: "path", Required: true, Description: "Key of the organization, in any case.",
			Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9A-Za-z]{4}$"}},
		{Name: "shortCode", In: "path", Required: true, Description: "Short code, in any case.",
			Schema: &huma.Schema{Type: huma.TypeString, Pattern: catalog.ShortCodePattern}},
	}
	const limits = "500 requests a second and IP address. 410: deactivated, expired, or of a suspended organization."
	found := described("To where the link leads, with the query of the short URL.", nil)
	found.Headers["Location"] = &huma.Header{Description: "Destination.", Schema: text("")}
	landing := described("A page, for a link that leads nowhere outside the app.", map[string]*huma.MediaType{"text/html": {}})
	resolve := func(id, method string) *huma.Operation {
		return &huma.Operation{
			OperationID: id, Method: method, Tags: []string{tagEdge}, Summary: "Resolve a short URL", Description: limits,
			Responses: responses([]int{400, 404, 410, 429, 500, 503}).with(http.StatusFound, found).with(http.StatusOK, landing),
		}
	}
	api.Paths["/{orgKey}/{shortCode}"] = &huma.PathItem{
		Servers: edges, Parameters: link, Get: resolve("resolveLink", http.MethodGet), Head: resolve("resolveLinkHead", http.MethodHead),
	}
	api.Paths["/{orgKey}/{shortCode}/data"] = &huma.PathItem{Servers: edges, Parameters: link, Get: &huma.Operation{
		OperationID: "linkData", Tags: []string{tagEdge}, Summary: "Read what is public of a link", Description: limits,
		Responses: responses([]int{400, 404, 410, 429, 500, 503}).
			with(http.StatusOK, answered(schemaPublicLink, exampleLink().Public(), "The link, for any origin.")),
	}}
	api.Paths["/match"] = &huma.PathItem{Servers: edges, Post: &huma.Operation{
		OperationID: "match", Tags: []string{tagEdge}, Summary: "Find the link that an app was installed for",
		Description: "A token matches once, within 24 hours of its click, while its link resolves. On every host of the edges, for any origin. " +
			"30 requests a minute and IP address, bodies of at most 16 KiB.",
		RequestBody: body(schemaMatchClaim, matchExample{ClipboardToken: exampleToken, DeviceID: "8e6b1f04"}, mediaJSON),
		Responses:   responses([]int{400, 413, 415, 429, 500, 503}).with(http.StatusOK, matchResponse()),
	}}
	api.Paths["/robots.txt"] = &huma.PathItem{Servers: edges, Get: &huma.Operation{
		OperationID: "robots", Tags: []string{tagEdge}, Summary: "What crawlers may read",
		Responses: responses(nil).with(http.StatusOK, described("The rules.", map[string]*huma.MediaType{"text/plain": {}})),
	}}
	addAssociations(api, edges)
	// Both programs answer it.
	api.Paths["/healthz"].Servers = append([]*huma.Server{{URL: "/", Description: "This service."}}, edges...)
	api.Components.Responses["410"] = described("The link does not resolve any more.", map[string]*huma.MediaType{
		envelope.ContentType: {Schema: reference(schemaError)},
	})
}

// matchResponse is one answer for everything but a match, so that it tells nothing.
func matchResponse() *huma.Response {
	link := exampleLink()
	return described("The link, or that there is none: the token is spent, unknown, forged or too old, or its link does not resolve.",
		map[string]*huma.MediaType{mediaJSON: {
			Schema: &huma.Schema{OneOf: []*huma.Schema{reference(schemaMatch), reference(schemaNoMatch)}},
			Examples: map[string]*huma.Example{
				"match": {Value: map[string]any{"matched": true, "matchType": "clipboard", "link": link.Public(),
					"clickedAt": link.CreatedAt, "matchedAt": catalog.Time{Time: link.CreatedAt.Add(time.Minute)}}},
				"noMatch": {Value: map[string]any{"matched": false, "matchType": nil, "link": nil}},
			},
		}})
}

// matchExample is the body of POST /match in the document.
type matchExample struct {
	ClipboardToken string `json:"clipboardToken"`
	DeviceID       string `json:"deviceId"`
}

// exampleToken has the form of a match token. No key made it.
const exampleToken = "AQGVUUyaAHs-jS87ahyeTxABnKlFCgcAAQIDBAUGBwgJCgsMDQ4PAAAAAAAAAAAAAAAAAAAAAA"

// example is the body of a request in the document.
type example struct {
	Path        string `json:"path,omitempty"`
	Channel     string `json:"channel,omitempty"`
	UTMCampaign string `json:"utmCampaign,omitempty"`
}

func exampleLink() catalog.Link {
	at := catalog.Time{Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	return catalog.Link{
		ID: "0195514c-9a00-7b3e-8d2f-3b6a1c9e4f10", OrganizationID: "0195514c-9a00-7000-8000-000000000001",
		DomainID: "0195514c-9a00-7000-8000-000000000002", ShortCode: "k7m2p9xw", URL: "https://go.example.com/ab12/k7m2p9xw",
		Path: "/products/42", Channel: new("email"), UTMCampaign: new("spring"), IsActive: true, CreatedAt: at, UpdatedAt: at,
	}
}

func exampleLinkWithDomain() catalog.LinkWithDomain {
	link := exampleLink()
	return catalog.LinkWithDomain{Link: link, Domain: catalog.Domain{
		ID: link.DomainID, Host: "go.example.com", IsDefault: true, Status: catalog.DomainVerified, CreatedAt: link.CreatedAt,
	}}
}

func examplePage() page {
	return page{Data: []catalog.LinkWithDomain{exampleLinkWithDomain()}, Total: 1, Page: 1, Limit: defaultLimit}
}
