package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSettingsOfTheConsoleAreChecked(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("c0", 32)
	file := filepath.Join(t.TempDir(), "keys")
	empty, large := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "large")
	for name, content := range map[string]string{file: key + "\n", empty: "\n", large: strings.Repeat("a", 64<<10+1)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	provider := []string{"--console-url=https://c.example", "--console-oidc-issuer=https://id.example/", "--console-oidc-client-id=c", "--console-session-keys=" + key}
	with := func(more ...string) []string { return append(append([]string{}, provider...), more...) }
	for _, test := range []struct {
		arguments []string
		names     string // empty: accepted
	}{
		{nil, ""}, {provider, ""}, {[]string{"--console-url=http://localhost:8081"}, ""}, {[]string{"--console-url=http://[::1]:8081"}, ""},
		{append(append([]string{}, provider[:3]...), "--console-session-keys-file="+file), ""},
		{with("--console-oidc-parameters=access_type=offline&prompt=consent", "--portal-role-claim=/a/b", "--console-provider-grace=0s"), ""},
		{[]string{"--console-url=http://c.example"}, "CONSOLE_URL"}, {[]string{"--console-url=https://c.example/"}, "CONSOLE_URL"},
		{[]string{"--console-url=https://C.example"}, "CONSOLE_URL"}, {[]string{"--console-url=https://c.example/console"}, "CONSOLE_URL"},
		{[]string{"--console-url=ftp://c.example"}, "CONSOLE_URL"}, {[]string{"--console-url=https://u@c.example"}, "CONSOLE_URL"},
		{provider[1:], "CONSOLE_URL"}, {append(append([]string{}, provider[:2]...), provider[3]), "CONSOLE_OIDC_CLIENT_ID"}, {provider[:3], "CONSOLE_SESSION_KEYS"},
		{with("--console-oidc-issuer=http://id.example"), "CONSOLE_OIDC_ISSUER"}, {with("--console-oidc-client-id=" + strings.Repeat("c", 256)), "CONSOLE_OIDC_CLIENT_ID"},
		{with("--console-session-keys-file=" + file), "CONSOLE_SESSION_KEYS_FILE"}, {with("--console-oidc-client-secret-file=/nowhere"), "CONSOLE_OIDC_CLIENT_SECRET_FILE"},
		{with("--console-session-keys=" + key[1:]), "CONSOLE_SESSION_KEYS"}, {with("--console-session-keys=" + key + "," + key), "CONSOLE_SESSION_KEYS"},
		{with("--console-oidc-scopes=profile"), "CONSOLE_OIDC_SCOPES"}, {with("--console-oidc-parameters=state=x"), "CONSOLE_OIDC_PARAMETERS"},
		{with("--console-oidc-parameters=" + strings.Repeat("a", 1025)), "CONSOLE_OIDC_PARAMETERS"}, {with("--console-oidc-token=jwt"), "CONSOLE_OIDC_TOKEN"},
		{[]string{"--console-session-idle=59s"}, "CONSOLE_SESSION_IDLE"}, {[]string{"--console-session-idle=24h1s"}, "CONSOLE_SESSION_IDLE"},
		{[]string{"--console-session-lifetime=7h"}, "CONSOLE_SESSION_LIFETIME"}, {[]string{"--console-session-lifetime=721h"}, "CONSOLE_SESSION_LIFETIME"},
		{[]string{"--console-provider-grace=61m"}, "CONSOLE_PROVIDER_GRACE"}, {[]string{"--console-provider-grace=-1s"}, "CONSOLE_PROVIDER_GRACE"},
		{[]string{"--console-session-idle=1m", "--console-session-lifetime=5m"}, ""}, {[]string{"--console-session-idle=24h", "--console-session-lifetime=720h", "--console-provider-grace=1h"}, ""},
		{[]string{"--console-session-idle=1m", "--console-session-lifetime=4m59s"}, "CONSOLE_SESSION_LIFETIME"},
		{[]string{"--console-session-idle=" + key}, "CONSOLE_SESSION_IDLE"}, {[]string{"--console-session-lifetime=" + key}, "CONSOLE_SESSION_LIFETIME"},
		{[]string{"--console-provider-grace=" + key}, "CONSOLE_PROVIDER_GRACE"}, {[]string{"--console-url=https://c.example/" + key}, "CONSOLE_URL"},
		{with("--console-oidc-issuer=https://u:" + key + "@id.example"), "CONSOLE_OIDC_ISSUER"}, {with("--console-oidc-issuer=https://id.example/#" + key), "CONSOLE_OIDC_ISSUER"},
		{with("--console-oidc-parameters=%zz" + key), "CONSOLE_OIDC_PARAMETERS"}, {with("--console-oidc-token=" + key), "CONSOLE_OIDC_TOKEN"},
		{with("--console-oidc-client-secret="+key, "--console-oidc-client-secret-file="+file), "CONSOLE_OIDC_CLIENT_SECRET_FILE"},
		{with("--console-oidc-client-secret-file=" + file), ""}, {with("--console-oidc-client-secret-file=" + empty), "CONSOLE_OIDC_CLIENT_SECRET_FILE"},
		{with("--console-oidc-client-secret-file=" + large), "CONSOLE_OIDC_CLIENT_SECRET_FILE"},
		{append(append([]string{}, provider[:3]...), "--console-session-keys-file="+empty), "CONSOLE_SESSION_KEYS_FILE"},
		{append(append([]string{}, provider[:3]...), "--console-session-keys-file="+large), "CONSOLE_SESSION_KEYS_FILE"}, {[]string{"--portal-orgs-claim=/~"}, "PORTAL_ORGS_CLAIM"},
	} {
		arguments := append([]string{"--database-url=postgres://127.0.0.1:1/x", "--redis-url=redis://127.0.0.1:1", "--link-base-url=" + testLinkBase}, test.arguments...)
		var stderr strings.Builder
		_, _, err := parseCommand(arguments, io.Discard, &stderr, func(int) {})
		if test.names == "" {
			if err != nil {
				t.Errorf("%q: %v, expected it to be accepted", test.arguments, err)
			}
			continue
		}
		flag := "--" + strings.ToLower(strings.ReplaceAll(test.names, "_", "-"))
		if err == nil || !strings.Contains(err.Error(), "$"+test.names) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%q: %v, expected an error that names %s and %s", test.arguments, err, flag, test.names)
		} else if strings.Contains(err.Error(), key[:20]) {
			t.Errorf("%q: the error repeats a key: %v", test.arguments, err)
		}
	}
}
