package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"deeplink/shared/catalog"
)

// billingPath is where a paid plan is selected.
const billingPath = "/portal/billing/checkout"

// setPlan answers PUT /portal/plan. Only a plan that costs nothing is set here: links beyond its quota stay and resolve, keys and
// custom domains wait until a plan has them again. Ending what is paid for is the billing provider's.
func (s *server) setPlan(x *exchange, r *http.Request, organization catalog.Organization) error {
	plan, err := readPlan(x, r)
	if err != nil {
		return err
	}
	if plan.Terms().Paid {
		return errUseBilling
	}
	organization, err = s.store.By(x.actor).SetPlan(r.Context(), organization.OrgKey, &plan)
	if err != nil {
		return err
	}
	return s.showOrganization(x, r, organization)
}

// readPlan reads a body that names a plan.
func readPlan(x *exchange, r *http.Request) (catalog.Plan, error) {
	body, err := readBody(x, r, mediaJSON)
	if err != nil {
		return "", err
	}
	o := readKnown(body, "plan")
	name, ok := o.text("plan")
	plan, known := catalog.ParsePlan(name)
	if ok && !known {
		o.refuse("plan", "must be free, starter, growth, scale or enterprise")
	}
	return plan, o.err()
}

// checkedOut is the answer of POST /portal/billing/checkout.
type checkedOut struct {
	URL string `json:"url"`
}

// checkOut answers POST /portal/billing/checkout.
func (s *server) checkOut(x *exchange, r *http.Request, organization catalog.Organization) error {
	if s.checkout == nil {
		return errNoCheckout
	}
	plan, err := readPlan(x, r)
	if err != nil {
		return err
	}
	if !plan.Terms().Paid {
		return fault("plan", "must be one that is paid for")
	}
	return writeJSON(x, http.StatusOK, checkedOut{s.checkout.address(organization.ID, plan, time.Now())})
}

const (
	// checkoutLifetime is how long the address of a checkout is good for.
	checkoutLifetime = time.Hour
	// checkoutKeySize is that of BILLING_SIGNING_KEY, in bytes.
	checkoutKeySize = 32
)

// checkout makes the addresses at which plans are paid for. The billing provider trusts what one says because of its last parameter:
// signature is the HMAC-SHA256, in hex, of the whole address before "&signature=".
type checkout struct {
	page  url.URL
	query url.Values
	key   []byte
}

// newCheckout returns nil when there is no billing provider.
func newCheckout(page, key string) (*checkout, error) {
	if page == "" {
		return nil, nil
	}
	parsed, err := url.Parse(page)
	if err != nil || parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Host == "" || parsed.User != nil || strings.Contains(page, "#") {
		return nil, errors.New("--billing-checkout-url ($BILLING_CHECKOUT_URL) must be an https or http URL without user and fragment")
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil {
		return nil, errors.New("--billing-checkout-url ($BILLING_CHECKOUT_URL) has a query that is not properly encoded")
	}
	secret, err := hex.DecodeString(key)
	if err != nil || len(secret) != checkoutKeySize {
		return nil, errors.New("--billing-signing-key ($BILLING_SIGNING_KEY) must be 64 hex digits when there is a billing page")
	}
	return &checkout{page: *parsed, query: query, key: secret}, nil
}

// address returns where the organization pays for the plan, within the next hour.
func (c *checkout) address(organizationID string, plan catalog.Plan, now time.Time) string {
	query := make(url.Values, len(c.query)+3)
	for name, values := range c.query {
		query[name] = values
	}
	query.Set("organization", organizationID)
	query.Set("plan", string(plan))
	query.Set("expires", strconv.FormatInt(now.Add(checkoutLifetime).Unix(), 10))
	query.Del("signature")
	page := c.page
	page.RawQuery = query.Encode()
	signed := page.String()
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(signed))
	return signed + "&signature=" + hex.EncodeToString(mac.Sum(nil))
}
