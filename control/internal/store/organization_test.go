package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/control/internal/store"
	"deeplink/shared/apikey"
	"deeplink/shared/catalog"
)

func TestCreateOrganizationCreatesDomainAppConfigAndKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := catalog.AppConfig{
		IOS:         &catalog.IOSApp{BundleID: ptr("com.acme.app"), TeamID: ptr("ABCDE12345"), AppStoreID: ptr("123456789"), Scheme: ptr("acme")},
		Android:     &catalog.AndroidApp{PackageName: ptr("com.acme.app"), SHA256CertFingerprints: []string{"AA", "BB"}, Scheme: ptr("acme")},
		FallbackURL: ptr("https://acme.example/"), HTMLErrorPages: true,
	}
	wanted := store.NewOrganization{Name: "Acme", OrgKey: "acme", ExternalID: ptr("org_1"), Plan: ptr(catalog.Scale), AppConfig: &config}
	created, change, err := f.store.CreateOrganization(t.Context(), testActor, wanted)
	if err != nil {
		t.Fatal(err)
	}
	expected := catalog.Organization{ID: created.ID, OrgKey: "acme", Name: "Acme", ExternalID: ptr("org_1"), Plan: ptr(catalog.Scale), CreatedAt: created.CreatedAt}
	got, err := f.store.Organization(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]catalog.Organization{"created": created.Organization, "read": got} {
		if diff := cmp.Diff(toJSON(t, expected), toJSON(t, o)); diff != "" {
			t.Errorf("%s (-expected +got):\n%s", what, diff)
		}
	}
	if !slices.Contains(change.Tags, "o:acme") || !slices.Contains(change.Tags, "d:acme") {
		t.Errorf("tags %v, expected the organization and its domain: an edge may have cached that it does not exist", change.Tags)
	}
	gotConfig, err := f.store.AppConfig(t.Context(), created.ID)
	if diff := cmp.Diff(config, gotConfig); diff != "" || err != nil {
		t.Errorf("app config: %v (-expected +got):\n%s", err, diff)
	}
	for tier, raw := range map[apikey.Tier]*string{apikey.Server: created.ServerKey, apikey.Client: created.ClientKey} {
		if raw == nil {
			t.Fatalf("no %s key", tier)
		}
		credential, err := f.store.Authenticate(t.Context(), apikey.Hash(*raw))
		if err != nil {
			t.Fatalf("authenticate with the %s key: %v", tier, err)
		}
		if diff := cmp.Diff(toJSON(t, expected), toJSON(t, credential.Organization)); diff != "" || credential.Tier != tier || credential.KeyID == "" {
			t.Errorf("%s key: got %+v (-expected +got):\n%s", tier, credential, diff)
		}
	}
	f.create(created.Organization, `{"path": "x"}`)
}

func TestOrganizationWithoutAPIAccessHasNoKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, plan := range []*catalog.Plan{nil, ptr(catalog.Free), ptr(catalog.Starter)} {
		created, _, err := f.store.CreateOrganization(t.Context(), testActor, store.NewOrganization{Name: "Acme", Plan: plan})
		if err != nil {
			t.Fatal(err)
		}
		if created.ServerKey != nil || created.ClientKey != nil {
			t.Errorf("plan %v: has keys", plan)
		}
		if !catalog.ValidOrgKey(created.OrgKey) {
			t.Errorf("generated key %q", created.OrgKey)
		}
		config, err := f.store.AppConfig(t.Context(), created.ID)
		if err != nil || config.Registered() {
			t.Errorf("app config %+v, %v; expected none", config, err)
		}
	}
	if n := one[int64](f, `select count(*) from api_keys`); n != 0 {
		t.Errorf("%d keys in the database", n)
	}
	all, err := f.store.Organizations(t.Context())
	if err != nil || len(all) != 3 || all[0].Plan != nil || *all[1].Plan != catalog.Free {
		t.Errorf("Organizations: %v, %v; expected the three, the oldest first", all, err)
	}
}

func TestOrganizationNamesAreUnique(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wanted := store.NewOrganization{Name: "Acme", OrgKey: "acme", ExternalID: ptr("org_1")}
	if _, _, err := f.store.CreateOrganization(t.Context(), testActor, wanted); err != nil {
		t.Fatal(err)
	}
	_, _, err := f.store.CreateOrganization(t.Context(), testActor, store.NewOrganization{Name: "Other", OrgKey: "acme"})
	expect(t, "the same key", err, store.ErrOrgKeyTaken)
	_, _, err = f.store.CreateOrganization(t.Context(), testActor, store.NewOrganization{Name: "Other", ExternalID: ptr("org_1")})
	expect(t, "the same external id", err, store.ErrExternalIDTaken)
	if n := one[int64](f, `select (select count(*) from organizations) + (select count(*) from domains) + (select count(*) from link_usage)`); n != 3 {
		t.Errorf("%d rows after rejected calls, expected 3", n)
	}
}

func TestSuspensionAndAppConfigReturnAChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	org := f.organization(catalog.Growth)
	for _, suspended := range []bool{true, true, false} {
		got, change, err := f.store.SetSuspended(t.Context(), testActor, org.OrgKey, suspended)
		if err != nil || got.Suspended != suspended || got.ID != org.ID {
			t.Errorf("SetSuspended(%t): %+v, %v", suspended, got, err)
		}
		f.recorded("suspend", change, "o:"+org.OrgKey)
	}
	for _, config := range []catalog.AppConfig{{FallbackURL: ptr("https://a.example/")}, {HTMLErrorPages: true}, {}} {
		change, err := f.store.SetAppConfig(t.Context(), testActor, org.ID, store.Unconditional, config)
		if err != nil {
			t.Fatal(err)
		}
		f.recorded("app config", change, "o:"+org.OrgKey, "d:shared")
		got, err := f.store.AppConfig(t.Context(), org.ID)
		if diff := cmp.Diff(config, got); diff != "" || err != nil {
			t.Errorf("app config: %v (-set +got):\n%s", err, diff)
		}
	}
	rows := one[int64](f, `select count(*) from changes`)
	for _, plan := range []*catalog.Plan{nil, ptr(catalog.Free)} {
		got, err := f.store.SetPlan(t.Context(), testActor, org.OrgKey, plan)
		if diff := cmp.Diff(plan, got.Plan); diff != "" || err != nil {
			t.Errorf("plan: %v (-set +got):\n%s", err, diff)
		}
	}
	if n := one[int64](f, `select count(*) from changes`); n != rows {
		t.Errorf("a new plan, which edges do not use, made %d rows of changes", n-rows)
	}

	_, _, err := f.store.SetSuspended(t.Context(), testActor, "none", true)
	expect(t, "SetSuspended of an unknown organization", err, store.ErrNotFound)
	_, err = f.store.SetPlan(t.Context(), testActor, "none", nil)
	expect(t, "SetPlan of an unknown organization", err, store.ErrNotFound)
	_, err = f.store.Organization(t.Context(), "none")
	expect(t, "Organization of an unknown organization", err, store.ErrNotFound)
	const unknownID = "00000000-0000-4000-8000-000000000000"
	_, err = f.store.SetAppConfig(t.Context(), testActor, unknownID, store.Unconditional, catalog.AppConfig{})
	expect(t, "SetAppConfig of an unknown organization", err, store.ErrNotFound)
	_, _, _, err = f.store.AddDomain(t.Context(), testActor, unknownID, store.Unconditional, "go.acme.example", true)
	expect(t, "AddDomain of an unknown organization", err, store.ErrNotFound)
	_, err = f.store.ReplaceKey(t.Context(), testActor, unknownID, store.Unconditional, apikey.Server, 0)
	expect(t, "ReplaceKey of an unknown organization", err, store.ErrNotFound)
}

func TestReplacedKeyEndsAtOnceOrAfterItsGrace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	created, _, err := f.store.CreateOrganization(t.Context(), testActor, store.NewOrganization{Name: "Acme", Plan: ptr(catalog.Growth)})
	if err != nil {
		t.Fatal(err)
	}
	first, client := *created.ServerKey, *created.ClientKey
	replace := func(grace time.Duration) string {
		key, err := f.store.ReplaceKey(t.Context(), testActor, created.ID, store.Unconditional, apikey.Server, grace)
		if err != nil {
			t.Fatal(err)
		}
		if key.Tier != apikey.Server || key.Prefix != "svc_api_" || key.DisplayKey != apikey.Display(key.RawKey) || key.CreatedAt.IsZero() {
			t.Errorf("new key %+v", key)
		}
		return key.RawKey
	}
	valid := func(when string, expected bool, keys ...string) {
		t.Helper()
		for _, raw := range keys {
			_, err := f.store.Authenticate(t.Context(), apikey.Hash(raw))
			if expected && err != nil {
				t.Errorf("%s: %v, expected a valid key", when, err)
			} else if !expected {
				expect(t, when, err, store.ErrNotFound)
			}
		}
	}
	valid("unknown", false, apikey.New(apikey.Server))
	valid("at first", true, first, client)
	second := replace(time.Hour)
	valid("in the grace", true, first, second, client)
	third := replace(time.Hour)
	valid("the key before the last", false, first)
	valid("in the second grace", true, second, third, client)
	f.exec(`update api_keys set valid_until = clock_timestamp() where valid_until is not null`)
	valid("after the grace", false, second)
	valid("after the grace", true, third, client)
	fourth := replace(0)
	valid("without grace", false, first, second, third)
	valid("without grace", true, fourth, client)
	if n := one[int64](f, `select count(*) from api_keys where tier = 'SERVER'`); n != 1 {
		t.Errorf("%d server keys kept, expected 1", n)
	}
}

func TestOrganizationIsFoundByItsExternalID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.organization(catalog.Free)
	created, _, err := f.store.CreateOrganization(t.Context(), testActor, store.NewOrganization{Name: "Acme", ExternalID: ptr("org_1")})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.store.ExternalOrganization(t.Context(), "org_1")
	if diff := cmp.Diff(toJSON(t, created.Organization), toJSON(t, got)); diff != "" || err != nil {
		t.Errorf("%v (-expected +got):\n%s", err, diff)
	}
	_, err = f.store.ExternalOrganization(t.Context(), "ORG_1")
	expect(t, "an external id in other letters", err, store.ErrNotFound)
}
