package face

import (
	"net"
	"net/http"
	"strings"
)

// Protect refuses what other sites' pages send through the browser of somebody who has this one open: requests that change
// something and come from elsewhere (http.CrossOriginProtection, by Sec-Fetch-Site and Origin) and, on a loopback address,
// names that are not this machine's. Such a name is another site's that its owner has made point here (DNS rebinding), so that
// its pages are of the same origin. Programs, which send none of these headers, are let in.
func Protect(h http.Handler, loopback bool) http.Handler {
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if loopback && !thisMachine(r.Host) {
			http.Error(w, "this server is for the machine it runs on", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
	return http.NewCrossOriginProtection().Handler(own)
}

// thisMachine reports whether a Host header is an address, which no other site can have, or the name of the loopback interface.
// None at all comes from a program: browsers send one.
func thisMachine(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	return host == "" || net.ParseIP(name) != nil || strings.EqualFold(name, "localhost")
}
