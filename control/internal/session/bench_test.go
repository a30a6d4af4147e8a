package session

import "testing"

func BenchmarkVerify(b *testing.B) {
	p := new(provider)
	p.publish(setOf(rsaKey(), ecdsaKey(), ed25519Key()))
	v := newVerifierOf(b, p)
	v.fetchesEnd(b, succeeded)
	for _, test := range []struct{ name, token, refused string }{
		{"RS256", rsaKey().token(noon, nil, nil), ""},
		{"ES256", ecdsaKey().token(noon, nil, nil), ""},
		{"EdDSA", ed25519Key().token(noon, nil, nil), ""},
		{"none", rsaKey().token(noon, members{"alg": "none"}, nil), string(badAlgorithm)},
		{"junk", "junk", string(malformed)},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), test.token, noon); (err == nil) != (test.refused == "") {
					b.Fatal(err)
				}
			}
		})
	}
}
