package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestSDKOriginsMustBeOrigins(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"*", "null", "shop.example.com", "https://shop.example.com/", "https://shop.example.com/shop", "https://shop.example.com?a", "https://*.example.com",
		"https://user@shop.example.com", "https://SHOP.example.com", "ftp://shop.example.com", "https://shop.example.com:443", "http://shop.example.com:80",
		"https://", "https://shop.example.com:", "https://shop.example.com:99999", "https://shop example.com", "https://läden.example", "https://a.example;https://b.example",
		"https://shop.example.com,*", "https://shop.example.com#a", "https://shop.example.com:080",
	} {
		var stderr strings.Builder
		code := run(t.Context(), []string{
			"--database-url=postgres://127.0.0.1:1/x", "--redis-url=redis://127.0.0.1:1", "--link-base-url=" + testLinkBase, "--control-sdk-origins=" + value,
		}, io.Discard, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), "control-sdk-origins") {
			t.Errorf("%q: exit code %d, expected 2: %s", value, code, stderr.String())
		}
	}
}
func TestSettingsOfThePortalAreChecked(t *testing.T) {
	t.Parallel()
	const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	for _, test := range []struct {
		arguments []string
		names     string // what a complaint is about
	}{
		{nil, ""},
		{[]string{"--portal-issuer=x"}, ""},
		{[]string{"--portal-jwks-url=https://id.example/jwks", "--portal-issuer=x"}, ""},
		{[]string{"--portal-jwks-url=http://127.0.0.1:1/jwks", "--portal-issuer=x", "--portal-dns=127.0.0.1:53"}, ""},
		{[]string{"--billing-checkout-url=https://b.example/", "--billing-signing-key=" + key, "--portal-dns=[::1]:53"}, ""},
		{[]string{"--portal-jwks-url=https://id.example/jwks"}, "PORTAL_ISSUER"},
		{[]string{"--portal-jwks-url=http://id.example/jwks", "--portal-issuer=x"}, "PORTAL_JWKS_URL"},
		{[]string{"--portal-dns=127.0.0.1"}, "PORTAL_DNS"},
		{[]string{"--portal-dns=:53"}, "PORTAL_DNS"},
		{[]string{"--billing-checkout-url=https://b.example/"}, "BILLING_SIGNING_KEY"},
		{[]string{"--billing-checkout-url=https://b.example/", "--billing-signing-key=" + key[2:]}, "BILLING_SIGNING_KEY"},
		{[]string{"--billing-checkout-url=https://b.example/", "--billing-signing-key=" + key[1:] + "x"}, "BILLING_SIGNING_KEY"},
		{[]string{"--billing-checkout-url=ftp://b.example/", "--billing-signing-key=" + key}, "BILLING_CHECKOUT_URL"},
		{[]string{"--billing-checkout-url=/pay", "--billing-signing-key=" + key}, "BILLING_CHECKOUT_URL"},
		{[]string{"--billing-checkout-url=https://b.example/#x", "--billing-signing-key=" + key}, "BILLING_CHECKOUT_URL"},
		{[]string{"--billing-checkout-url=https://u:p@b.example/", "--billing-signing-key=" + key}, "BILLING_CHECKOUT_URL"},
		{[]string{"--billing-checkout-url=https://b.example/?%zz", "--billing-signing-key=" + key}, "BILLING_CHECKOUT_URL"},
	} {
		printed := new(logBuffer)
		_, _, err := parseCommand(append([]string{"--database-url=postgres://u@127.0.0.1/d", "--redis-url=redis://127.0.0.1:1", "--link-base-url=" + testLinkBase},
			test.arguments...), printed, printed, func(int) {})
		complaint := fmt.Sprint(err)
		if (err == nil) != (test.names == "") || !strings.Contains(complaint, test.names) || strings.Contains(complaint, key[2:60]) {
			t.Errorf("%v: %v, expected a complaint about %q that shows no secret", test.arguments, err, test.names)
		}
	}
}
