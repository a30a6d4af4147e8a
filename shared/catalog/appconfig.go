package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var appConfigFields = []field[AppConfig]{
	object("ios", func(c *AppConfig) **IOSApp { return &c.IOS }, []field[IOSApp]{
		member("bundleId", func(a *IOSApp) **string { return &a.BundleID },
			matching(BundleIDPattern, "must be a bundle id such as com.example.app")),
		member("teamId", func(a *IOSApp) **string { return &a.TeamID },
			matching(TeamIDPattern, "must be 10 of A-Z and 0-9")),
		member("appStoreId", func(a *IOSApp) **string { return &a.AppStoreID },
			matching(AppStoreIDPattern, "must be a string of 5 to 12 digits")),
		member("scheme", func(a *IOSApp) **string { return &a.Scheme }, readAppScheme),
	}),
	object("android", func(c *AppConfig) **AndroidApp { return &c.Android }, []field[AndroidApp]{
		member("packageName", func(a *AndroidApp) **string { return &a.PackageName },
			matching(PackageNamePattern, "must be a package name such as com.example.app")),
		member("sha256CertFingerprints", func(a *AndroidApp) *[]string { return &a.SHA256CertFingerprints }, readFingerprints),
		member("scheme", func(a *AndroidApp) **string { return &a.Scheme }, readAppScheme),
	}),
	member("fallbackUrl", func(c *AppConfig) **string { return &c.FallbackURL }, readURL),
	member("htmlErrorPages", func(c *AppConfig) *bool { return &c.HTMLErrorPages }, readBool),
}

// ReadAppConfig reads an app config, which need not be complete enough to count as registered. IOS and Android are nil when none of their
// members is set. The error is an [Invalid]; body is as for [ReadLink].
func ReadAppConfig(body []byte) (AppConfig, error) {
	edits, bad := readObject(body, "", appConfigFields, nil, create)
	if bad != nil {
		return AppConfig{}, Invalid{bad}
	}
	var config AppConfig
	for _, edit := range edits {
		edit(&config)
	}
	return config, nil
}

func matching(pattern, otherwise string) func(json.RawMessage) (*string, error) {
	expression := regexp.MustCompile(pattern)
	mismatch := errors.New(otherwise)
	return func(value json.RawMessage) (*string, error) {
		s, err := readString(value)
		switch {
		case err != nil:
			return nil, err
		case len(s) > MaxAppID || !expression.MatchString(s):
			return nil, mismatch
		}
		return &s, nil
	}
}

var appScheme = matching(AppSchemePattern, "must be 2 to 32 of a-z, 0-9, +, . and -, and begin with a letter")

func readAppScheme(value json.RawMessage) (*string, error) {
	scheme, err := appScheme(value)
	if err == nil && slices.Contains(ReservedAppSchemes, *scheme) {
		return nil, errReserved
	}
	return scheme, err
}

var (
	fingerprint     = matching(FingerprintPattern, "must be 32 pairs of hex digits with colons between them")
	errFingerprints = fmt.Errorf("must have 1 to %d entries", MaxFingerprints)
)

// readFingerprints returns fingerprints in upper case, as assetlinks.json requires.
func readFingerprints(value json.RawMessage) ([]string, error) {
	var values []json.RawMessage
	if value[0] != '[' || json.Unmarshal(value, &values) != nil {
		return nil, errNotStrings
	}
	if len(values) == 0 || len(values) > MaxFingerprints {
		return nil, errFingerprints
	}
	fingerprints := make([]string, len(values))
	for i, v := range values {
		s, err := fingerprint(v)
		if err != nil {
			return nil, fmt.Errorf("entry %d %w", i+1, err)
		}
		fingerprints[i] = strings.ToUpper(*s)
	}
	return fingerprints, nil
}
