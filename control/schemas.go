package main

import (
	"maps"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// Names of the schemas of the document.
const (
	schemaLinkCreate = "LinkCreate"
	schemaLinkPatch  = "LinkPatch"
	schemaLink       = "Link"
	schemaLinkDomain = "LinkWithDomain"
	schemaLinkPage   = "LinkPage"
	schemaDeletion   = "Deletion"
	schemaDomain     = "Domain"
	schemaPublicLink = "PublicLink"
	schemaMatchClaim = "MatchClaim"
	schemaMatch      = "Match"
	schemaNoMatch    = "NoMatch"
	schemaHealth     = "Health"
	schemaError      = "Error"
)

const uuidPattern = `^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`

// schemas are the bodies of the API. The bounds are catalog's, which are those of validation.
func schemas() map[string]*huma.Schema {
	input, answer := linkInput(), linkAnswer()
	withDomain := maps.Clone(answer)
	withDomain["domain"] = reference(schemaDomain)

	create := closed(maps.Clone(input))
	create.Required = []string{"path"}
	patch := maps.Clone(input)
	patch["shortCode"] = required(input["shortCode"])
	for name, schema := range answer {
		// What was read can be sent back.
		if _, settable := input[name]; !settable {
			create.Properties[name] = &huma.Schema{ReadOnly: true, Description: "Ignored. " + schema.Description}
			patch[name] = create.Properties[name]
		}
	}
	create.Properties["domain"] = &huma.Schema{ReadOnly: true, Description: "Ignored."}
	patch["domain"] = create.Properties["domain"]

	return map[string]*huma.Schema{
		schemaLinkCreate: create,
		schemaLinkPatch:  closed(patch),
		schemaLink:       complete(answer),
		schemaLinkDomain: complete(withDomain),
		schemaLinkPage:   pageOf(schemaLinkDomain, "How many links match the filters, on all pages."),
		schemaDeletion: complete(map[string]*huma.Schema{
			"id":      identifier("What is gone."),
			"deleted": {Type: huma.TypeBoolean, Enum: []any{true}},
		}),
		schemaDomain:     complete(domainAnswer()),
		schemaPublicLink: publicLink(answer),
		schemaMatchClaim: matchClaim(),
		schemaMatch: complete(map[string]*huma.Schema{
			"matched":   {Type: huma.TypeBoolean, Enum: []any{true}},
			"matchType": {Type: huma.TypeString, Enum: []any{"clipboard", "install_referrer"}, Description: "How the token came."},
			"link":      reference(schemaPublicLink),
			"clickedAt": instant("Time of the click that the token was made for."),
			"matchedAt": instant("Time when the token was presented first."),
		}),
		schemaNoMatch: complete(map[string]*huma.Schema{
			"matched":   {Type: huma.TypeBoolean, Enum: []any{false}},
			"matchType": {Type: typeNull},
			"link":      {Type: typeNull},
		}),
		schemaHealth: complete(map[string]*huma.Schema{"status": {Type: huma.TypeString, Enum: []any{"ok"}}}),
		schemaError:  errorSchema(),

		schemaAppleAssociation:  appleAssociation(),
		schemaGoogleAssociation: googleAssociation(),
	}
}

// pageOf is a page of a list.
func pageOf(schema, total string) *huma.Schema {
	return complete(map[string]*huma.Schema{
		"data":  {Type: huma.TypeArray, Items: reference(schema)},
		"total": {Type: huma.TypeInteger, Minimum: new(0.0), Description: total},
		"page":  {Type: huma.TypeInteger, Minimum: new(1.0)},
		"limit": {Type: huma.TypeInteger, Minimum: new(1.0), Maximum: new(float64(maxLimit))},
	})
}

// domainAnswer are the fields of a domain as it is answered.
func domainAnswer() map[string]*huma.Schema {
	return map[string]*huma.Schema{
		"id":        identifier(""),
		"host":      text(""),
		"isDefault": {Type: huma.TypeBoolean, Description: "Whether it is the shared host, on which links live unless they name another."},
		"isCustom":  {Type: huma.TypeBoolean},
		"status":    {Type: huma.TypeString, Enum: []any{string(catalog.DomainPending), string(catalog.DomainVerified)}},
		"createdAt": instant(""),
	}
}

// linkInput are the fields of a link that a client sets (decisions.md 1).
func linkInput() map[string]*huma.Schema {
	fields := map[string]*huma.Schema{
		"path": bounded(1, catalog.MaxPath, "Destination inside the app, such as /products/42?color=red. No scheme, no leading //, no backslash, "+
			"no control characters. White space around it is dropped."),
		"domainId": identifier("Domain of the link. The organization's default domain when omitted or null."),
		"shortCode": {Type: huma.TypeString, Pattern: catalog.ShortCodePattern, MinLength: new(1), MaxLength: new(catalog.MaxShortCode),
			Description: "Unique within the organization, compared without regard to case. Generated when omitted. A few words are reserved."},
		"channel":     channel(),
		"utmSource":   bounded(0, catalog.MaxUTM, "Blank text is null."),
		"utmMedium":   bounded(0, catalog.MaxUTM, "Blank text is null."),
		"utmCampaign": bounded(0, catalog.MaxUTM, "Blank text is null."),
		"utmTerm":     bounded(0, catalog.MaxUTM, "Blank text is null."),
		"utmContent":  bounded(0, catalog.MaxUTM, "Blank text is null."),
		"fallbackUrl": webURL("Where a click without the app goes."),
		"og": closed(map[string]*huma.Schema{
			"title":       optional(bounded(0, catalog.MaxOGTitle, "")),
			"description": optional(bounded(0, catalog.MaxOGDescription, "")),
			"imageUrl":    optional(webURL("")),
		}),
		"title": bounded(0, catalog.MaxTitle, "For people who manage links. Never public."),
		"tags": {Type: huma.TypeArray, MaxItems: new(catalog.MaxTags), Items: bounded(1, catalog.MaxTag, ""),
			Description: "Trimmed, without duplicates, in the order sent. Never public."},
		"expiry":     instant("From then on the link no longer resolves (410). May be in the past."),
		"templateId": bounded(1, catalog.MaxTemplateID, "Opaque to the service."),
		"params":     {Type: huma.TypeObject, AdditionalProperties: true, Description: "Handed to the app. At most 8 KiB as sent, at most 8 levels deep."},
		"isActive":   {Type: huma.TypeBoolean, Default: true, Description: "An inactive link does not resolve (410). Null is true."},
	}
	fields["og"].Description = "What a preview of the link shows. A merge patch merges it key by key."
	for name, schema := range fields {
		if name != "path" {
			optional(schema)
		}
	}
	return fields
}

// linkAnswer are all fields of a link as it is answered.
func linkAnswer() map[string]*huma.Schema {
	fields := linkInput()
	for _, name := range []string{"domainId", "shortCode", "isActive"} {
		fields[name] = required(fields[name])
	}
	fields["isActive"].Default = nil
	fields["og"] = optional(complete(fields["og"].Properties))
	fields["id"] = identifier("Identifier of the link.")
	fields["organizationId"] = identifier("Organization of the link.")
	fields["url"] = &huma.Schema{Type: huma.TypeString, Format: "uri", Description: "The short URL."}
	fields["createdAt"] = instant("")
	fields["updatedAt"] = instant("")
	return fields
}

// publicLink is what an edge tells anyone about a link (decisions.md 3).
func publicLink(answer map[string]*huma.Schema) *huma.Schema {
	public := maps.Clone(answer)
	for _, name := range []string{"organizationId", "domainId", "title", "tags", "templateId", "isActive", "createdAt", "updatedAt"} {
		delete(public, name)
	}
	return complete(public)
}

// typeNull is the type of null (JSON Schema 2020-12, which OpenAPI 3.1 is made of).
const typeNull = "null"

// matchClaim is the body of POST /match (decisions.md 4).
func matchClaim() *huma.Schema {
	claim := &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true, Description: "Fields that are not known are ignored.",
		Properties: map[string]*huma.Schema{
			"clipboardToken":  bounded(1, 100, "The mt parameter of the short URL on the clipboard. Required unless there is an installReferrer."),
			"installReferrer": bounded(0, 2048, "The referrer as the Play Store hands it over; its mt parameter is the token."),
			"deviceId":        bounded(0, 128, "Lets a device that lost the answer ask for it again for a minute."),
			"platform":        {Type: huma.TypeString, Enum: []any{"ios", "android", "web"}},
			"appVersion":      bounded(0, 64, ""),
		},
	}
	for _, schema := range claim.Properties {
		optional(schema)
	}
	return claim
}

func errorSchema() *huma.Schema {
	schema := closed(map[string]*huma.Schema{
		"statusCode": {Type: huma.TypeInteger, Minimum: new(400.0), Maximum: new(599.0)},
		"error":      text("Name of the status, such as Payment Required."),
		"message":    text("Cause, for a person."),
		"details": {Type: huma.TypeArray, Description: "One entry per bad field, when validation failed.", Items: &huma.Schema{
			Type: huma.TypeObject, AdditionalProperties: false, Required: []string{"message"},
			Properties: map[string]*huma.Schema{"field": text("Name of the field, such as og.title."), "message": text("")},
		}},
		"timestamp":       instant("Time of the answer."),
		"path":            text("Path of the request, without its query."),
		"requestId":       text("The X-Request-Id of the request, when it sent a valid one."),
		"code":            {Type: huma.TypeString, Enum: []any{"QUOTA_EXCEEDED", "PLAN_NOT_SELECTED", "FEATURE_NOT_AVAILABLE", "USE_BILLING_FLOW", "APP_CONFIG_REQUIRED"}},
		"quota":           {Type: huma.TypeString, Enum: []any{"links", "domains"}, Description: "With QUOTA_EXCEEDED."},
		"feature":         {Type: huma.TypeString, Enum: []any{"api_access", "custom_domains"}, Description: "With FEATURE_NOT_AVAILABLE."},
		"billingEndpoint": text("With USE_BILLING_FLOW: where to begin."),
	})
	schema.Required = []string{"statusCode", "error", "message", "timestamp", "path"}
	return schema
}

func reference(name string) *huma.Schema { return &huma.Schema{Ref: "#/components/schemas/" + name} }

func text(description string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: description}
}

// bounded is text of least to most characters.
func bounded(least, most int, description string) *huma.Schema {
	schema := &huma.Schema{Type: huma.TypeString, MaxLength: &most, Description: description}
	if least > 0 {
		schema.MinLength = &least
	}
	return schema
}

func channel() *huma.Schema {
	known := make([]any, len(catalog.Channels))
	for i, name := range catalog.Channels {
		known[i] = name
	}
	return &huma.Schema{Type: huma.TypeString, Enum: known}
}

func identifier(description string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid", Pattern: uuidPattern, Description: description}
}

func webURL(description string) *huma.Schema {
	schema := bounded(1, catalog.MaxURL, description)
	schema.Format, schema.Pattern = "uri", "^[Hh][Tt][Tt][Pp][Ss]?://"
	return schema
}

func instant(description string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Description: description}
}

// optional makes a schema allow null.
func optional(schema *huma.Schema) *huma.Schema {
	schema.Nullable = true
	if schema.Enum != nil {
		schema.Enum = append(schema.Enum, nil)
	}
	return schema
}

// required returns the schema without null.
func required(schema *huma.Schema) *huma.Schema {
	copied := *schema
	copied.Nullable = false
	return &copied
}

// closed is an object that has no other properties.
func closed(properties map[string]*huma.Schema) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false, Properties: properties}
}

// complete is an object that has all of the properties and no others.
func complete(properties map[string]*huma.Schema) *huma.Schema {
	schema := closed(properties)
	schema.Required = slices.Sorted(maps.Keys(properties))
	return schema
}

// securityKey names the security scheme of server keys.
const securityKey = "ServerKey"

func securitySchemes() map[string]*huma.SecurityScheme {
	return map[string]*huma.SecurityScheme{
		securityKey: {
			Type: "http", Scheme: "bearer", BearerFormat: apikey.Prefix(apikey.Server) + "…",
			Description: "A server key of the organization.",
		},
		securityClient: clientScheme(),
		securitySession: {
			Type: "http", Scheme: "bearer", BearerFormat: "JWT",
			Description: "A session token of the identity provider, with an active organization.",
		},
	}
}
