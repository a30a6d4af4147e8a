package main

import (
	"maps"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

// Names of the schemas of the portal.
const (
	schemaOrganization = "Organization"
	schemaPlanChoice   = "PlanChoice"
	schemaCheckout     = "Checkout"
	schemaAppConfig    = "AppConfig"
	schemaAppConfigPut = "AppConfigInput"
	schemaKeys         = "Keys"
	schemaNewKey       = "NewKey"
	schemaGrace        = "Grace"
	schemaOwnDomain    = "OwnDomain"
	schemaDomainList   = "DomainList"
	schemaHostChoice   = "HostChoice"
	schemaJudgement    = "DomainJudgement"
	schemaAuditPage    = "AuditPage"
	schemaAuditEntry   = "AuditEntry"
)

// portalSchemas are the bodies of the portal.
func portalSchemas() map[string]*huma.Schema {
	own := domainAnswer()
	own["verification"] = optional(complete(map[string]*huma.Schema{
		"type":  {Type: huma.TypeString, Enum: []any{"TXT"}},
		"name":  text("Name of the record."),
		"value": text("Its value."),
	}))
	own["verification"].Description = "The DNS record that proves the domain. Null for the default domain."
	judged := maps.Clone(own)
	judged["message"] = optional(text("Why the domain is still pending. Null when it is verified."))
	choice := closed(map[string]*huma.Schema{"plan": plan()})
	choice.Required = []string{"plan"}
	host := closed(map[string]*huma.Schema{"host": bounded(3, catalog.MaxCustomHost+1, "Host name of two labels or more. An international name in its punycode form.")})
	host.Required = []string{"host"}
	return map[string]*huma.Schema{
		schemaOrganization: complete(map[string]*huma.Schema{
			"id":         identifier(""),
			"orgKey":     {Type: huma.TypeString, Pattern: "^[a-z0-9]{4}$", Description: "First part of the path of its short URLs on the shared host."},
			"name":       text(""),
			"externalId": optional(text("Id under which the identity provider knows it.")),
			"plan":       optional(plan()),
			"suspended":  {Type: huma.TypeBoolean},
			"features": complete(map[string]*huma.Schema{
				"api_access":     {Type: huma.TypeBoolean, Description: "Whether the plan has API keys."},
				"custom_domains": {Type: huma.TypeBoolean, Description: "Whether the plan has custom domains."},
			}),
			"links": complete(map[string]*huma.Schema{
				"used":  count("How many links there are now."),
				"quota": optional(count("How many there may be. Null: any number.")),
			}),
		}),
		schemaPlanChoice:   choice,
		schemaCheckout:     complete(map[string]*huma.Schema{"url": {Type: huma.TypeString, Format: "uri"}}),
		schemaAppConfig:    appConfigAnswer(),
		schemaAppConfigPut: closed(appConfigInput()),
		schemaKeys: complete(map[string]*huma.Schema{
			"sdkKey":    maskedKeySchema("Of the SDK: tier CLIENT."),
			"serverKey": maskedKeySchema("Of backends: tier SERVER."),
			"locked":    {Type: huma.TypeBoolean, Description: "Whether the plan has no API keys."},
		}),
		schemaNewKey: complete(map[string]*huma.Schema{
			"tier":       tierSchema(),
			"rawKey":     text("The key. It is not shown again."),
			"prefix":     text(""),
			"displayKey": text("Its masked form."),
			"createdAt":  instant(""),
		}),
		schemaGrace: closed(map[string]*huma.Schema{
			"graceSeconds": optional(&huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0), Maximum: new(float64(maxGrace / time.Second)), Default: 0,
				Description: "For how long the replaced key goes on."}),
		}),
		schemaOwnDomain:  complete(own),
		schemaDomainList: complete(map[string]*huma.Schema{"data": {Type: huma.TypeArray, Items: reference(schemaOwnDomain)}}),
		schemaHostChoice: host,
		schemaJudgement:  complete(judged),
		schemaAuditPage:  pageOf(schemaAuditEntry, "How many entries match, on all pages; it counts no further than 10,000."),
		schemaAuditEntry: auditEntry(),
	}
}

func plan() *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{
		string(catalog.Free), string(catalog.Starter), string(catalog.Growth), string(catalog.Scale), string(catalog.Enterprise),
	}}
}

func tierSchema() *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{string(apikey.Server), string(apikey.Client)}}
}

func count(description string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Minimum: new(0.0), Description: description}
}

func maskedKeySchema(description string) *huma.Schema {
	schema := optional(complete(map[string]*huma.Schema{"prefix": text(""), "displayKey": text("Prefix, … and the last four characters.")}))
	schema.Description = description
	return schema
}

// appConfigInput are the fields of an app config (decisions.md 5). All may be null or absent.
func appConfigInput() map[string]*huma.Schema {
	form := func(pattern, description string) *huma.Schema {
		return optional(&huma.Schema{Type: huma.TypeString, Pattern: pattern, Description: description})
	}
	fingerprints := optional(&huma.Schema{
		Type: huma.TypeArray, MinItems: new(1), MaxItems: new(catalog.MaxFingerprints), Description: "SHA-256 of the certificates that sign the app.",
		Items: &huma.Schema{Type: huma.TypeString, Pattern: catalog.FingerprintPattern},
	})
	const scheme = "Custom scheme that opens the app. Not one that means something else to a browser."
	return map[string]*huma.Schema{
		"ios": optional(closed(map[string]*huma.Schema{
			"bundleId":   form(catalog.BundleIDPattern, "Such as com.example.app."),
			"teamId":     form(catalog.TeamIDPattern, ""),
			"appStoreId": form(catalog.AppStoreIDPattern, ""),
			"scheme":     form(catalog.AppSchemePattern, scheme),
		})),
		"android": optional(closed(map[string]*huma.Schema{
			"packageName":            form(catalog.PackageNamePattern, "Such as com.example.app."),
			"sha256CertFingerprints": fingerprints,
			"scheme":                 form(catalog.AppSchemePattern, scheme),
		})),
		"fallbackUrl":    optional(webURL("Where a click goes that opens no app, unless the link has a fallback of its own.")),
		"htmlErrorPages": optional(&huma.Schema{Type: huma.TypeBoolean, Default: false, Description: "Whether a browser gets a page for a link that does not resolve. Null is false."}),
	}
}

// appConfigAnswer is an app config as it is answered.
func appConfigAnswer() *huma.Schema {
	fields := appConfigInput()
	for _, name := range []string{"ios", "android"} {
		fields[name] = optional(complete(fields[name].Properties))
	}
	fields["htmlErrorPages"] = required(fields["htmlErrorPages"])
	fields["htmlErrorPages"].Default = nil
	return complete(fields)
}

func auditEntry() *huma.Schema {
	return complete(map[string]*huma.Schema{
		"id": identifier(""),
		"at": instant(""),
		"actor": complete(map[string]*huma.Schema{
			"type":       {Type: huma.TypeString, Enum: []any{string(store.ActorUser), string(store.ActorKey), string(store.ActorOperator)}},
			"id":         optional(text("Subject of the session token, id of the API key, or name of the service's operator.")),
			"displayKey": optional(text("Masked form of the API key.")),
		}),
		"action": text("Such as link.delete. More may be added."),
		"target": complete(map[string]*huma.Schema{
			"type": {Type: huma.TypeString, Description: "link, domain, key, appConfig or organization; an app config has the id of its organization."},
			"id":   identifier(""),
		}),
		"ip":        optional(text("Address from which the change came. Null for an operator.")),
		"requestId": optional(text("X-Request-Id of the answer.")),
		"detail":    {Type: huma.TypeObject, AdditionalProperties: true, Description: "What the action does not say, such as fields: the names of those that were changed."},
	})
}

// securitySession names the security scheme of session tokens.
const securitySession = "SessionToken"
