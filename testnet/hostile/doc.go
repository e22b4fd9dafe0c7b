// Package hostile holds a node against clients that mean it harm: thousands of connections that stay idle, that never end what they begin, or
// that send what is no request, long bodies that never become whole, and streams that are reset as fast as they are opened. Beside them go
// clients that behave: they are to be answered, and how much longer they wait is told.
//
// What has to hold: the node lives, clients that behave get an answer every time, those that there is no room for are told so in their
// protocol's words, and when it is over the node has given back its connections, file descriptors and goroutines.
package hostile
