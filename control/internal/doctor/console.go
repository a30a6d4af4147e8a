package doctor

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"deeplink/control/internal/signin"
)

// Console is what doctor examines of the console's sign-in. The zero value: the console has no sign-in.
type Console struct {
	// URL is CONSOLE_URL, and Issuer and Scopes are those of the identity provider, empty for none.
	URL, Issuer string
	Scopes      []string
}

// maxClockDifference is how much the provider's clock may differ: tokens are accepted within this leeway.
const maxClockDifference = 5 * time.Second

// console examines the address of the console and the identity provider.
func (d *examiner) console() {
	c := d.options.Console
	if c.URL == "" {
		return
	}
	d.consoleAddress(c.URL)
	if c.Issuer == "" {
		return
	}
	const check = "identity provider"
	document, date, err := signin.Discover(d.ctx, c.Issuer)
	if err != nil {
		d.add(Error, check, err.Error(), "check CONSOLE_OIDC_ISSUER, which must be exactly the issuer of the discovery document, and the network from control to the provider")
		return
	}
	sound := true
	warn := func(found, do string) {
		sound = false
		d.add(Warning, check, found, do)
	}
	if !document.SupportsS256() {
		sound = false
		d.add(Error, check, "it does not support PKCE with S256", "allow S256 for the client, or use another provider")
	}
	if document.ResponseTypes != nil && !slices.Contains(document.ResponseTypes, "code") {
		warn("it does not list the authorization code flow", "allow the response type code for the client")
	}
	if document.Algorithms != nil && !slices.ContainsFunc(document.Algorithms, func(a string) bool { return a == "RS256" || a == "ES256" || a == "EdDSA" }) {
		warn("it signs ID tokens with none of RS256, ES256 and EdDSA", "change the signature algorithm of the client")
	}
	if slices.Contains(c.Scopes, "offline_access") && document.Scopes != nil && !slices.Contains(document.Scopes, "offline_access") {
		warn("it does not list the scope offline_access, so sessions may end with their token", "allow it for the client, or change CONSOLE_OIDC_SCOPES and CONSOLE_OIDC_PARAMETERS")
	}
	if difference := time.Until(date); !date.IsZero() && difference.Abs() > maxClockDifference+time.Second { // Date has whole seconds
		warn(fmt.Sprintf("its clock differs by %v", difference.Round(time.Second)), "synchronize the clocks: tokens are accepted within 5 s")
	}
	if sound {
		d.ok(check, "discovery document of "+c.Issuer)
	}
}

// consoleAddress checks that browsers that go to CONSOLE_URL reach a control.
func (d *examiner) consoleAddress(origin string) {
	const check = "console URL"
	const do = "check CONSOLE_URL, and that the proxy in front of control passes /console and /portal to it"
	ctx, cancel := context.WithTimeout(d.ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+"/healthz", nil)
	if err != nil {
		d.add(Error, check, "not a URL", do)
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.add(Warning, check, "not reached from here", do)
		return
	}
	response.Body.Close()
	if response.Header.Get("Deeplink-Version") == "" || !strings.HasPrefix(response.Status, "200") {
		d.add(Error, check, fmt.Sprintf("the server there is no control: status %d", response.StatusCode), do)
		return
	}
	d.ok(check, "reaches a control")
}
