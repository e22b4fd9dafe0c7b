// Package parsers holds edgelimit's readings of requests against those of real servers: Django, Flask, Starlette,
// Express with cookie-parser, Node's new URL, Tomcat, PHP, lighttpd and Rack. A generator writes the target, a cookie,
// the bearer's token and the name of a header in thousands of forms. What a server reads as the plain request's,
// edgelimit has to count as that, or to deny: so no form passes more often than the plain request.
//
// testdata/readings.txt records who reads what, so that tests hold without the programs. Where a program is installed,
// its recording is verified. These commands install all of them on Debian 12 and record anew:
//
//	apt-get install --no-install-recommends python3-django gunicorn python3-flask python3-starlette uvicorn \
//		node-express node-cookie-parser libtomcat10-java default-jdk-headless php-cli lighttpd ruby-rack puma
//	go test ./testnet/parsers -run TestReadings -record
//
// With -seeds 30 the test asks the installed servers about 108,000 forms more.
//
// The models of models_test.go are the parsers in a few lines of Go each. The recording holds them to what the real
// ones read, and FuzzReadings holds edgelimit to the models.
package parsers
