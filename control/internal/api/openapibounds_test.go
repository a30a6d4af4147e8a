package api

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/clicks"
	"deeplink/control/internal/decode"
	"deeplink/control/internal/openapi"
	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
	"deeplink/shared/click"
	"deeplink/shared/envelope"
	"deeplink/shared/qr"
	"deeplink/shared/requestid"
)

// openapiYAML returns openapi.yaml as control serves it.
func openapiYAML(t *testing.T) (text []byte, doc *openapi3.T) {
	t.Helper()
	text, err := openapi.Document(testLinkBase)
	if err != nil {
		t.Fatal(err)
	}
	if doc, err = openapi3.NewLoader().LoadFromData(text); err != nil {
		t.Fatal(err)
	}
	return text, doc
}

// TestRoutesAndDocumentedPathsAreTheSame compares the router with the paths of openapi.yaml in both directions.
func TestRoutesAndDocumentedPathsAreTheSame(t *testing.T) {
	t.Parallel()
	handler, err := testServer(io.Discard).handler()
	if err != nil {
		t.Fatal(err)
	}
	var served, documented []string
	if err := chi.Walk(handler.(chi.Routes), func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		switch {
		case strings.HasPrefix(path, "/docs/"), path == "/console", strings.HasPrefix(path, "/console/"): // files for browsers
		case method == http.MethodHead: // of each GET
		default:
			served = append(served, method+" "+path)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, doc := openapiYAML(t)
	for path, item := range doc.Paths.Map() {
		if len(item.Servers) == 1 {
			continue // served only by edges
		}
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Errorf("(-served +in openapi.yaml):\n%s", diff)
	}
	if len(served) < 30 {
		t.Errorf("only %d routes were found", len(served))
	}
}

// TestDocumentedBoundsAreTheConstants compares every bound of openapi.yaml with the constants of the code. Bounds must be in the
// components: a bound anywhere else fails the test.
func TestDocumentedBoundsAreTheConstants(t *testing.T) {
	t.Parallel()
	codes, quotas, features := []string{}, []string{}, []string{}
	add := func(list *[]string, value string) {
		if value != "" && !slices.Contains(*list, value) {
			*list = append(*list, value)
		}
	}
	for _, row := range problems {
		add(&codes, row.code)
		add(&quotas, row.quota)
		add(&features, row.feature)
	}
	plans := []catalog.Plan{catalog.Free, catalog.Starter, catalog.Growth, catalog.Scale, catalog.Enterprise}
	unset := qr.Defaults()
	const relation = "delegate_permission/common.handle_all_urls"
	expected := map[string]any{
		"parameters.Page.minimum":     1,
		"parameters.Page.maximum":     maxPage,
		"parameters.Page.default":     1,
		"parameters.Limit.minimum":    1,
		"parameters.Limit.maximum":    maxLimit,
		"parameters.Limit.default":    defaultLimit,
		"parameters.Search.maxLength": maxSearch,

		"parameters.Timezone.default":        "UTC",
		"parameters.ClickInterval.enum":      clicks.Intervals,
		"parameters.ClickInterval.default":   clicks.NoInterval,
		"parameters.ClickGroupBy.enum":       clicks.GroupBys,
		"parameters.ClickClass.items.enum":   append(publicClasses(), "all"),
		"parameters.ClickClass.default":      []string{"human"},
		"parameters.ClickOutcome.items.enum": append(click.Outcomes(), "all"),
		"parameters.ClickOrder.enum":         []string{"desc", "asc"},
		"parameters.ClickOrder.default":      "desc",
		"parameters.ClickLimit.minimum":      1,
		"parameters.ClickLimit.maximum":      maxClickLimit,
		"parameters.ClickAfter.minLength":    1,
		"parameters.ClickAfter.maxLength":    maxClickCursor,
		"parameters.ClickAfter.pattern":      `^[A-Za-z0-9_-]+$`,
		"parameters.Include.enum":            []string{"clicks"},
		"schemas.MissingClicks.state.enum":   []clicks.State{clicks.Waiting, clicks.Forgotten, clicks.Lost, clicks.Off},
		"parameters.Tag.maxLength":           catalog.MaxTag,
		"parameters.QRSize.minimum":          qr.MinSize,
		"parameters.QRSize.maximum":          qr.MaxSize,
		"parameters.QRSize.default":          unset.Size,
		"parameters.QRLevel.enum":            []string{"L", "M", "Q", "H"},
		"parameters.QRLevel.default":         string(unset.Level),
		"parameters.QRMargin.minimum":        0,
		"parameters.QRMargin.maximum":        qr.MaxMargin,
		"parameters.QRMargin.default":        unset.Margin,
		"headers.Version.enum":               []string{version},
		"headers.Propagation.enum":           []relay.Propagation{relay.Complete, relay.Pending},

		"schemas.RequestId.minLength": 1,
		"schemas.RequestId.maxLength": requestid.MaxLength,
		"schemas.RequestId.pattern":   requestid.Pattern,
		"schemas.WebURL.minLength":    1,
		"schemas.WebURL.maxLength":    catalog.MaxURL,
		"schemas.Plan.enum":           plans,
		"schemas.Tier.enum":           []apikey.Tier{apikey.Server, apikey.Client},
		"schemas.Error.code.enum":     codes,
		"schemas.Error.quota.enum":    quotas,
		"schemas.Error.feature.enum":  features,

		"schemas.LinkPath.minLength":           1,
		"schemas.LinkPath.maxLength":           catalog.MaxPath,
		"schemas.ShortCode.minLength":          1,
		"schemas.ShortCode.maxLength":          catalog.MaxShortCode,
		"schemas.ShortCode.pattern":            catalog.ShortCodePattern,
		"schemas.Channel.enum":                 catalog.Channels,
		"schemas.ExternalId.minLength":         1,
		"schemas.ExternalId.maxLength":         catalog.MaxExternalID,
		"schemas.IdempotencyKey.minLength":     1,
		"schemas.UpsertResult.enum":            []store.Result{store.Created, store.Updated, store.Unchanged},
		"schemas.Cursor.minLength":             1,
		"schemas.Cursor.maxLength":             200,
		"schemas.Cursor.pattern":               "^[A-Za-z0-9_-]{1,200}$",
		"schemas.CursorOrEmpty.maxLength":      200,
		"parameters.Total.default":             false,
		"schemas.LinkCursorPage.limit.minimum": 1,
		"schemas.LinkCursorPage.limit.maximum": maxLimit,
		"schemas.Bulk.operations.minItems":     1,
		"schemas.Bulk.operations.maxItems":     maxOperations,
		"schemas.Bulk.atomic.default":          false,
		"schemas.Operation.op.enum":            []store.OperationKind{store.CreateLink, store.UpdateLink, store.UpsertLink, store.DeleteLink},
		"schemas.BulkResult.result.enum":       []store.Result{store.Created, store.Updated, store.Unchanged, store.Deleted},
		"schemas.UTM.maxLength":                catalog.MaxUTM,
		"schemas.LinkTitle.maxLength":          catalog.MaxTitle,
		"schemas.Tags.maxItems":                catalog.MaxTags,
		"schemas.Tags.items.minLength":         1,
		"schemas.Tags.items.maxLength":         catalog.MaxTag,
		"schemas.TemplateId.minLength":         1,
		"schemas.TemplateId.maxLength":         catalog.MaxTemplateID,
		"schemas.OGTitle.maxLength":            catalog.MaxOGTitle,
		"schemas.OGDescription.maxLength":      catalog.MaxOGDescription,
		"schemas.LinkCreate.isActive.default":  true,
		"schemas.LinkPatch.isActive.default":   true,
		"schemas.LinkPage.limit.minimum":       1,
		"schemas.LinkPage.limit.maximum":       maxLimit,
		"schemas.LinkPage.page.minimum":        1,

		"schemas.DeviceId.minLength":                1,
		"schemas.DeviceId.maxLength":                repeats(t, deviceIDPattern),
		"schemas.DeviceId.pattern":                  deviceIDPattern,
		"schemas.DeviceField.maxLength":             maxDeviceField,
		"schemas.UserId.minLength":                  1,
		"schemas.UserId.maxLength":                  MaxUserID,
		"schemas.SessionReport.openedUrl.maxLength": maxOpenedURL,
		"schemas.EventBatch.events.minItems":        1,
		"schemas.EventBatch.events.maxItems":        maxEvents,
		"schemas.Event.name.minLength":              1,
		"schemas.Event.name.maxLength":              1 + repeats(t, eventNamePattern),
		"schemas.Event.name.pattern":                eventNamePattern,
		"schemas.Event.revenue.exclusiveMinimum":    -maxRevenue,
		"schemas.Event.revenue.exclusiveMaximum":    maxRevenue,
		"schemas.Event.currency.pattern":            currencyPattern,

		"schemas.BundleId.maxLength":                    catalog.MaxAppID,
		"schemas.BundleId.pattern":                      catalog.BundleIDPattern,
		"schemas.TeamId.pattern":                        catalog.TeamIDPattern,
		"schemas.AppStoreId.pattern":                    catalog.AppStoreIDPattern,
		"schemas.PackageName.maxLength":                 catalog.MaxAppID,
		"schemas.PackageName.pattern":                   catalog.PackageNamePattern,
		"schemas.Fingerprints.minItems":                 1,
		"schemas.Fingerprints.maxItems":                 catalog.MaxFingerprints,
		"schemas.Fingerprints.items.pattern":            catalog.FingerprintPattern,
		"schemas.AppScheme.pattern":                     catalog.AppSchemePattern,
		"schemas.AppConfigInput.htmlErrorPages.default": false,
		"schemas.Grace.graceSeconds.minimum":            0,
		"schemas.Grace.graceSeconds.maximum":            int(maxGrace / time.Second),
		"schemas.Grace.graceSeconds.default":            0,
		"schemas.DomainStatus.enum":                     []catalog.DomainStatus{catalog.DomainPending, catalog.DomainVerified},
		"schemas.Transfer.direction.enum":               []string{transferIn, transferOut},
		"schemas.HostChoice.host.minLength":             len("a.b"),
		"schemas.HostChoice.host.maxLength":             catalog.MaxCustomHost + len("."), // of a name including its last dot
		"schemas.AuditPage.limit.minimum":               1,
		"schemas.AuditPage.limit.maximum":               maxLimit,
		"schemas.AuditPage.page.minimum":                1,
		"schemas.AuditEntry.actor.type.enum":            []store.ActorType{store.ActorUser, store.ActorKey, store.ActorOperator, store.ActorService},

		// Not constants that control can import: forms of responses, and bounds of requests to an edge.
		"parameters.OrgKey.pattern":                                            "^[0-9A-Za-z]{4}$",
		"headers.AnyOrigin.enum":                                               []string{"*"},
		"schemas.UUID.pattern":                                                 "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$",
		"schemas.WebURL.pattern":                                               "^[Hh][Tt][Tt][Pp][Ss]?://",
		"schemas.Color.pattern":                                                "^[0-9A-Fa-f]{6}$",
		"schemas.Error.statusCode.minimum":                                     400,
		"schemas.Error.statusCode.maximum":                                     599,
		"schemas.LinkPage.total.minimum":                                       0,
		"schemas.LinkCursorPage.total.minimum":                                 0,
		"schemas.EntityTag.pattern":                                            `^"[A-Za-z0-9._-]{1,64}"$`,
		"schemas.Error.failedIndex.minimum":                                    0,
		"schemas.BulkResult.index.minimum":                                     0,
		"schemas.BulkResult.status.minimum":                                    200,
		"schemas.BulkResult.status.maximum":                                    599,
		"headers.Replayed.enum":                                                []string{"true"},
		"schemas.Deletion.deleted.enum":                                        []bool{true},
		"schemas.EventReceipt.accepted.minimum":                                0,
		"schemas.EventReceipt.duplicates.minimum":                              0,
		"schemas.EventReceipt.rejected.items.index.minimum":                    0,
		"schemas.Organization.orgKey.pattern":                                  "^[a-z0-9]{4}$",
		"schemas.Organization.links.used.minimum":                              0,
		"schemas.Organization.links.quota.minimum":                             0,
		"schemas.Verification.type.enum":                                       []string{"TXT"},
		"schemas.AuditPage.total.minimum":                                      0,
		"schemas.Health.status.enum":                                           []string{"ok"},
		"schemas.MatchClaim.clipboardToken.minLength":                          1,
		"schemas.MatchClaim.clipboardToken.maxLength":                          100,
		"schemas.MatchClaim.installReferrer.maxLength":                         2048,
		"schemas.MatchClaim.deviceId.maxLength":                                128,
		"schemas.MatchClaim.appVersion.maxLength":                              64,
		"schemas.MatchClaim.platform.enum":                                     []any{"ios", "android", "web", nil},
		"schemas.Match.matched.enum":                                           []bool{true},
		"schemas.Match.matchType.enum":                                         []string{"clipboard", "install_referrer"},
		"schemas.NoMatch.matched.enum":                                         []bool{false},
		"schemas.PathPatterns.items.exclude.enum":                              []bool{true},
		"schemas.AppleAppSiteAssociation.applinks.defaults.caseSensitive.enum": []bool{false},
		"schemas.AssetLinks.items.relation.items.enum":                         []string{relation},
		"schemas.AssetLinks.items.target.namespace.enum":                       []string{"android_app"},
	}
	text, _ := openapiYAML(t)
	var document struct {
		Paths      any
		Components map[string]any
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]any)
	for _, kind := range []string{"parameters", "headers", "schemas"} {
		collectBounds(document.Components[kind], kind, false, found)
	}
	asJSON := func(bounds map[string]any) map[string]string {
		all := make(map[string]string)
		for name, value := range bounds {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
		return all
	}
	if diff := cmp.Diff(asJSON(expected), asJSON(found)); diff != "" {
		t.Errorf("(-code +openapi.yaml):\n%s", diff)
	}

	elsewhere := make(map[string]any)
	collectBounds(document.Paths, "paths", false, elsewhere)
	for _, kind := range []string{"requestBodies", "responses"} {
		collectBounds(document.Components[kind], kind, false, elsewhere)
	}
	for _, name := range slices.Sorted(maps.Keys(elsewhere)) {
		t.Errorf("%s: expected a reference to a schema of the components", name)
	}
}

// boundKeywords restrict values in JSON Schema.
var boundKeywords = []string{"minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
	"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "enum", "const", "default"}

// collectBounds adds the bounds in node and below it to found, keyed by their position. If names is set, the keys of node are names of
// properties, not keywords.
func collectBounds(node any, place string, names bool, found map[string]any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			switch {
			case names:
				collectBounds(value, place+"."+key, false, found)
			case key == "example" || key == "examples":
			case slices.Contains(boundKeywords, key):
				found[place+"."+key] = value
			case key == "schema" || key == "properties":
				collectBounds(value, place, key == "properties", found)
			default:
				collectBounds(value, place+"."+key, false, found)
			}
		}
	case []any:
		for i, value := range node {
			collectBounds(value, place+"."+strconv.Itoa(i), false, found)
		}
	}
}

// repeats returns the maximum number of repetitions of the last part of a pattern that ends with {n,m}$.
func repeats(t *testing.T, pattern string) int {
	t.Helper()
	rest, _ := strings.CutSuffix(pattern, "}$")
	most, err := strconv.Atoi(rest[strings.LastIndex(rest, ",")+1:])
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	return most
}

// TestDocumentedErrorsAreThoseOfTheCode compares the examples of the error responses with the table from errors to responses: each example
// is an envelope that control sends, and each status and code has one.
func TestDocumentedErrorsAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	sent := []problem{validationFailed([]envelope.Detail{{Field: "path", Message: "path is required"}}), problemOf(errRateLimited{2 * time.Second}), internal}
	for _, row := range problems {
		sent = append(sent, row.problem)
	}
	name := func(status int, code string) string { return strings.TrimSpace(fmt.Sprint(status, " ", code)) }
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	envelopes, missing := make(map[string]bool), make(map[string]bool)
	for _, p := range sent {
		e := envelope.New(p.status, p.message, "/links", "8f0c5f0e", at)
		e.Details, e.Code, e.Quota, e.Feature, e.BillingEndpoint = p.details, p.code, p.quota, p.feature, p.billingEndpoint
		envelopes[canonical(t, e.JSON())] = true
		missing[name(p.status, p.code)] = true
	}
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusHTTPVersionNotSupported} {
		delete(missing, name(status, "")) // used by no operation
	}

	_, doc := openapiYAML(t)
	for _, response := range doc.Components.Responses {
		media := response.Value.Content["application/json"]
		if media == nil {
			continue
		}
		for _, example := range media.Examples {
			text, err := json.Marshal(example.Value.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !envelopes[canonical(t, text)] {
				t.Errorf("control never sends the example %s", text)
			}
			var e struct {
				StatusCode int
				Code       string
			}
			if err := json.Unmarshal(text, &e); err != nil {
				t.Fatal(err)
			}
			delete(missing, name(e.StatusCode, e.Code))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("openapi.yaml has no example of %s", what)
	}
}

// canonical returns JSON with its keys in order.
func canonical(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDescriptionsNameTheLimitsOfTheCode compares limits that openapi.yaml can express only in words with the code.
func TestDescriptionsNameTheLimitsOfTheCode(t *testing.T) {
	t.Parallel()
	_, doc := openapiYAML(t)
	operation := func(method, path string) string {
		t.Helper()
		item := doc.Paths.Find(path)
		if item == nil || item.GetOperation(method) == nil {
			t.Fatalf("%s %s is not in openapi.yaml", method, path)
		}
		return item.GetOperation(method).Description
	}
	schema := func(name string) string { return doc.Components.Schemas[name].Value.Description }
	kib := func(bytes int) string { return fmt.Sprintf("%d KiB", bytes>>10) }
	days := func(d time.Duration) string { return fmt.Sprintf("%d days", d/(24*time.Hour)) }
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	for _, row := range []struct{ where, text, expected string }{
		{"info", doc.Info.Description, "at most " + kib(decode.MaxBody)},
		{"version", doc.Info.Version, version},
		{"writeLinks", operation("POST", "/links/bulk"), fmt.Sprintf("at most %d MiB", maxBulkBody>>20)},
		{"writeLinks", operation("POST", "/links/bulk"), fmt.Sprintf("exceed %d MiB", maxResultLinks>>20)},
		{"writeLinks", doc.Paths.Find("/links/bulk").Post.Summary, thousands(maxOperations) + " links"},
		{"recordEvents", operation("POST", "/sdk/events"), "at most " + kib(decode.MaxBody)},
		{"recordEvents", operation("POST", "/sdk/events"), fmt.Sprintf("%d events with properties of %s", maxEvents, kib(maxObjectBytes))},
		{"addDomain", operation("POST", "/portal/domains"), fmt.Sprintf("at most %d custom domains", store.MaxDomains)},
		{"verifyDomain", operation("POST", "/portal/domains/{id}/verify"), days(store.TransferPeriod) + " later"},
		{"listAudit", operation("GET", "/portal/audit-log"), "up to " + thousands(store.MaxAudited)},
		{"AuditPage", doc.Components.Schemas["AuditPage"].Value.Properties["total"].Value.Description, "at most " + thousands(store.MaxAudited)},
		{"JSONObject", schema("JSONObject"), fmt.Sprintf("At most %s as sent, and at most %d levels", kib(catalog.MaxParamsBytes), catalog.MaxParamsDepth)},
		{"JSONObject", schema("JSONObject"), "At most " + kib(maxObjectBytes) + " as sent"},
		{"AppScheme", schema("AppScheme"), strings.Join(catalog.ReservedAppSchemes, ", ") + "."},
	} {
		if !strings.Contains(row.text, row.expected) {
			t.Errorf("%s: %q, expected to contain %q", row.where, row.text, row.expected)
		}
	}
}

// publicClasses are the names of the classes that responses have.
func publicClasses() (names []string) {
	for _, class := range clicks.PublicClasses {
		names = append(names, class.String())
	}
	return names
}
