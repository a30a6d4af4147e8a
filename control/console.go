package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"deeplink/control/internal/console"
	"deeplink/control/internal/seal"
	"deeplink/control/internal/session"
	"deeplink/control/internal/signin"
	"deeplink/control/internal/store"
	"deeplink/shared/settings"
)

// consoleOrigin is where browsers reach the console.
type consoleOrigin struct {
	URL string `name:"console-url" env:"CONSOLE_URL" help:"Origin at which browsers reach control, such as https://links.example.com. Without it the console has no sign-in."`
}

// check returns an error unless the origin is empty or one whose cookies only control gets.
func (c consoleOrigin) check() error {
	var origin settings.Origin
	parsed, err := url.Parse(c.URL)
	if c.URL == "" {
		return nil
	}
	if err == nil {
		err = origin.UnmarshalText([]byte(c.URL))
	}
	if err != nil || string(origin) != c.URL || parsed.Scheme == "http" && !isLocal(parsed.Hostname()) {
		return errors.New("--console-url ($CONSOLE_URL) must be https:// and a host in lower case, with a port unless it is 443 and nothing after it; " +
			"http:// only for localhost, 127.0.0.1 and [::1]")
	}
	return nil
}

func isLocal(host string) bool {
	return slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}

// consoleSettings are the settings of the console and of its sign-in. All are strings without a type of their own, because kong prints values that
// their type refuses.
type consoleSettings struct {
	consoleOrigin
	OIDCIssuer   string `name:"console-oidc-issuer" env:"CONSOLE_OIDC_ISSUER" help:"Issuer of the OpenID Connect provider with which people sign in to the console, exactly as in its discovery document. Requires --console-url, --console-oidc-client-id and --console-session-keys."`
	ClientID     string `name:"console-oidc-client-id" env:"CONSOLE_OIDC_CLIENT_ID" help:"Id of this client at the provider."`
	ClientSecret string `name:"console-oidc-client-secret" env:"CONSOLE_OIDC_CLIENT_SECRET" help:"Secret of this client at the provider. Without it the client is public."`
	SecretFile   string `name:"console-oidc-client-secret-file" env:"CONSOLE_OIDC_CLIENT_SECRET_FILE" help:"File with the secret of this client."`
	Scopes       string `name:"console-oidc-scopes" env:"CONSOLE_OIDC_SCOPES" default:"openid profile email offline_access" help:"Scopes to request, separated by spaces. One must be openid."`
	Parameters   string `name:"console-oidc-parameters" env:"CONSOLE_OIDC_PARAMETERS" help:"More parameters of the authorization request, form-encoded, such as access_type=offline."`
	Token        string `name:"console-oidc-token" env:"CONSOLE_OIDC_TOKEN" default:"id_token" help:"Token with the organization and the role: id_token or access_token."`
	SessionKeys  string `name:"console-session-keys" env:"CONSOLE_SESSION_KEYS" help:"1 to 8 keys of 64 hex digits, separated by commas, that encrypt tokens. The first encrypts, all decrypt."`
	KeysFile     string `name:"console-session-keys-file" env:"CONSOLE_SESSION_KEYS_FILE" help:"File with these keys."`
	Idle         string `name:"console-session-idle" env:"CONSOLE_SESSION_IDLE" default:"8h" help:"How long after its last call a session of the console ends, 1m to 24h."`
	Lifetime     string `name:"console-session-lifetime" env:"CONSOLE_SESSION_LIFETIME" default:"168h" help:"How long after the sign-in a session of the console ends, 5m to 720h."`
	Grace        string `name:"console-provider-grace" env:"CONSOLE_PROVIDER_GRACE" default:"10m" help:"How long the console can read while the provider is unreachable, 0s to 1h."`
}

const (
	// maxFile bounds files with secrets, maxParameters the additional parameters, in bytes; maxClientID is in characters.
	maxFile       = 64 << 10
	maxParameters = 1 << 10
	maxClientID   = 255
)

// ownParameters are the parameters of the authorization request that control sets itself.
var ownParameters = []string{
	"response_type", "client_id", "redirect_uri", "scope", "state", "nonce", "code_challenge", "code_challenge_method",
}

// fromFile returns the value of a setting, or the content of its file without one final line break. flag and variable name the setting in errors,
// which never contain the value.
func fromFile(value, file, flag, variable string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("set either --%s ($%s) or --%[1]s-file ($%[2]s_FILE), not both", flag, variable)
	}
	unreadable := fmt.Errorf("--%s-file ($%s_FILE) must name a readable file of at most %d bytes", flag, variable, maxFile)
	f, err := os.Open(file)
	if err != nil {
		return "", unreadable
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil || len(content) > maxFile {
		return "", unreadable
	}
	text, cut := strings.CutSuffix(string(content), "\n")
	if cut {
		text = strings.TrimSuffix(text, "\r")
	}
	if text == "" {
		// An empty value would be as if the file were not set: a public client without a secret.
		return "", fmt.Errorf("--%s-file ($%s_FILE) names an empty file", flag, variable)
	}
	return text, nil
}

// keys returns the encryption keys, or nil when there are none.
func (c *consoleSettings) keys() (*seal.Keys, error) {
	list, err := fromFile(c.SessionKeys, c.KeysFile, "console-session-keys", "CONSOLE_SESSION_KEYS")
	if err != nil || list == "" {
		return nil, err
	}
	keys, err := seal.ParseKeys(list)
	if err != nil {
		return nil, fmt.Errorf("--console-session-keys ($CONSOLE_SESSION_KEYS): %w", err)
	}
	return keys, nil
}

// provider returns the settings of the identity provider, or nil without one.
func (c *consoleSettings) provider(portal *portalSettings, keys *seal.Keys) (*signin.ProviderOptions, error) {
	secret, err := fromFile(c.ClientSecret, c.SecretFile, "console-oidc-client-secret", "CONSOLE_OIDC_CLIENT_SECRET")
	if err != nil {
		return nil, err
	}
	scopes := strings.Fields(c.Scopes)
	if !slices.Contains(scopes, "openid") {
		return nil, errors.New("--console-oidc-scopes ($CONSOLE_OIDC_SCOPES) must contain openid")
	}
	parameters, err := c.parameters()
	if err != nil {
		return nil, err
	}
	if c.Token != signin.JudgeIDToken && c.Token != signin.JudgeAccessToken {
		return nil, errors.New("--console-oidc-token ($CONSOLE_OIDC_TOKEN) must be id_token or access_token")
	}
	if n := utf8.RuneCountInString(c.ClientID); n > maxClientID {
		return nil, fmt.Errorf("--console-oidc-client-id ($CONSOLE_OIDC_CLIENT_ID) must have 1 to %d characters", maxClientID)
	}
	if c.OIDCIssuer == "" {
		return nil, nil
	}
	if !session.SecureURL(c.OIDCIssuer) || strings.Contains(c.OIDCIssuer, "?") {
		return nil, errors.New("--console-oidc-issuer ($CONSOLE_OIDC_ISSUER) must be an https URL, or http and a loopback address, without user, query and fragment")
	}
	for _, missing := range []struct {
		flag, variable string
		is             bool
	}{
		{"console-url", "CONSOLE_URL", c.URL == ""}, {"console-oidc-client-id", "CONSOLE_OIDC_CLIENT_ID", c.ClientID == ""},
		{"console-session-keys", "CONSOLE_SESSION_KEYS", keys == nil},
	} {
		if missing.is {
			return nil, fmt.Errorf("--console-oidc-issuer ($CONSOLE_OIDC_ISSUER) requires --%s ($%s)", missing.flag, missing.variable)
		}
	}
	return &signin.ProviderOptions{
		Issuer: c.OIDCIssuer, ClientID: c.ClientID, ClientSecret: secret, Scopes: scopes, Parameters: parameters, Judge: c.Token,
		Audience: portal.Audience, OrganizationClaim: portal.OrgClaim, RoleClaim: portal.RoleClaim, OrganizationsClaim: portal.OrgsClaim,
	}, nil
}

func (c *consoleSettings) parameters() (url.Values, error) {
	values, err := url.ParseQuery(c.Parameters)
	if err != nil || len(c.Parameters) > maxParameters {
		return nil, fmt.Errorf("--console-oidc-parameters ($CONSOLE_OIDC_PARAMETERS) must be form-encoded and have at most %d bytes", maxParameters)
	}
	for _, name := range ownParameters {
		if values.Has(name) {
			return nil, fmt.Errorf("--console-oidc-parameters ($CONSOLE_OIDC_PARAMETERS) must not name %s, which control sets", name)
		}
	}
	return values, nil
}

// service returns what signs people in, or nil without CONSOLE_URL. The error names the setting that is invalid.
func (c *consoleSettings) service(portal *portalSettings, s *store.Store, metrics *signin.Metrics, log *slog.Logger) (*signin.Service, error) {
	if err := c.consoleOrigin.check(); err != nil {
		return nil, err
	}
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	provider, err := c.provider(portal, keys)
	if err != nil {
		return nil, err
	}
	var idle, lifetime, grace time.Duration
	for _, bound := range []struct {
		flag, variable, value string
		least, most           time.Duration
		parsed                *time.Duration
	}{
		{"console-session-idle", "CONSOLE_SESSION_IDLE", c.Idle, time.Minute, maxSessionIdle, &idle},
		{"console-session-lifetime", "CONSOLE_SESSION_LIFETIME", c.Lifetime, 5 * time.Minute, 720 * time.Hour, &lifetime},
		{"console-provider-grace", "CONSOLE_PROVIDER_GRACE", c.Grace, 0, time.Hour, &grace},
	} {
		if *bound.parsed, err = time.ParseDuration(bound.value); err != nil || *bound.parsed < bound.least || *bound.parsed > bound.most {
			return nil, fmt.Errorf("--%s ($%s) must be a duration from %v to %v", bound.flag, bound.variable, bound.least, bound.most)
		}
	}
	if lifetime < idle {
		return nil, errors.New("--console-session-lifetime ($CONSOLE_SESSION_LIFETIME) must be at least --console-session-idle ($CONSOLE_SESSION_IDLE)")
	}
	if c.URL == "" {
		return nil, nil
	}
	service, err := signin.New(signin.Options{
		URL: c.URL, Provider: provider, Keys: keys, Idle: idle, Lifetime: lifetime, Grace: grace, Store: s, Metrics: metrics, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--console-oidc-issuer ($CONSOLE_OIDC_ISSUER): %w", err)
	}
	return service, nil
}

// maxSessionIdle is the highest value of CONSOLE_SESSION_IDLE.
const maxSessionIdle = 24 * time.Hour

// page returns what the page of the console knows before a person has signed in.
func (c *consoleSettings) page() console.Settings {
	s := console.Settings{Provider: c.OIDCIssuer != ""}
	if c.URL == "" {
		s.Missing = []string{"CONSOLE_URL"}
	}
	return s
}
