package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Names of the schemas of the files that associate apps with a host.
const (
	schemaAppleAssociation  = "AppleAppSiteAssociation"
	schemaGoogleAssociation = "AssetLinks"
)

// addAssociations describes the files that the edges serve from the app configs (decisions.md 2).
func addAssociations(api *huma.OpenAPI, edges []*huma.Server) {
	const shared = " On the shared host it has the apps of all organizations, each with its own path. Should that become too large for %s, " +
		"the oldest organizations stay in it, and the others need a custom domain. A host without an app has an empty one, a host that is " +
		"no verified domain none (404). 500 requests a second and IP address, with those for links."
	add := func(path, id, summary, description, schema, example string) {
		api.Paths[path] = &huma.PathItem{Servers: edges, Get: &huma.Operation{
			OperationID: id, Tags: []string{tagEdge}, Summary: summary, Description: description,
			Responses: responses([]int{404, 429, 500, 503}).with(http.StatusOK, answered(schema, json.RawMessage(example), "The file.")),
		}}
	}
	add("/.well-known/apple-app-site-association", "appleAppSiteAssociation", "Tell Apple's devices which apps open links of this host",
		"An app is there once its app config has a team id and a bundle id."+fmt.Sprintf(shared, "Apple (128 KB)"), schemaAppleAssociation,
		`{"applinks":{"defaults":{"caseSensitive":false},"details":[{"appIDs":["ABCDE12345.com.example.app"],`+
			`"components":[{"/":"/ab12/*/data","exclude":true},{"/":"/ab12/*"}]}]}}`)
	add("/.well-known/assetlinks.json", "assetLinks", "Tell Android which apps open links of this host",
		"An app is there once its app config has a package name and a fingerprint."+fmt.Sprintf(shared, "Android (1 MiB)"), schemaGoogleAssociation,
		`[{"relation":["delegate_permission/common.handle_all_urls"],"target":{"namespace":"android_app","package_name":"com.example.app",`+
			`"sha256_cert_fingerprints":["14:6D:E9:83:C5:73:06:50:D8:EE:B9:95:2F:34:FC:64:16:A0:83:42:E6:1D:BE:A8:8A:04:96:B2:3F:CF:44:E5"]},`+
			`"relation_extensions":{"delegate_permission/common.handle_all_urls":{"dynamic_app_link_components":`+
			`[{"/":"/ab12/*/data","exclude":true},{"/":"/ab12/*"}]}}}]`)
}

func appleAssociation() *huma.Schema {
	return complete(map[string]*huma.Schema{"applinks": complete(map[string]*huma.Schema{
		"defaults": complete(map[string]*huma.Schema{"caseSensitive": {Type: huma.TypeBoolean, Enum: []any{false}}}),
		"details": list(complete(map[string]*huma.Schema{
			"appIDs": list(text("Team id and bundle id.")), "components": pathPatterns(),
		})),
	})})
}

func googleAssociation() *huma.Schema {
	const relation = "delegate_permission/common.handle_all_urls"
	return list(complete(map[string]*huma.Schema{
		"relation": list(&huma.Schema{Type: huma.TypeString, Enum: []any{relation}}),
		"target": complete(map[string]*huma.Schema{
			"namespace":                {Type: huma.TypeString, Enum: []any{"android_app"}},
			"package_name":             text(""),
			"sha256_cert_fingerprints": list(text("In upper case.")),
		}),
		"relation_extensions": complete(map[string]*huma.Schema{relation: complete(map[string]*huma.Schema{"dynamic_app_link_components": pathPatterns()})}),
	}))
}

// pathPatterns are the links of an app, on Apple's devices and on Android.
func pathPatterns() *huma.Schema {
	pattern := closed(map[string]*huma.Schema{"/": text("Pattern of paths."), "exclude": {Type: huma.TypeBoolean, Enum: []any{true}}})
	pattern.Required = []string{"/"}
	patterns := list(pattern)
	patterns.Description = "The first pattern that matches decides whether the app opens a path; one that none matches it does not open."
	return patterns
}

func list(items *huma.Schema) *huma.Schema { return &huma.Schema{Type: huma.TypeArray, Items: items} }
