# Rack behind Puma: puma -b tcp://127.0.0.1:PORT rack.ru
require "json"

def leaves(value)
  case value
  when Hash then value.values.flat_map { |v| leaves(v) }
  when Array then value.flat_map { |v| leaves(v) }
  else [value&.to_s&.scrub]
  end
end

# what a part of the request cannot be read from is missing
def read
  yield
rescue StandardError
  []
end

run lambda { |env|
  request = Rack::Request.new(env)
  path = env["PATH_INFO"]
  scheme, token = env["HTTP_AUTHORIZATION"].to_s.split
  body = {
    path: read { leaves([path, Rack::Utils.unescape_path(path), path.squeeze("/")]) },
    query: read { leaves(request.params["token"]) },
    cookie: read { leaves(request.cookies["session"]) },
    token: read { leaves(scheme.to_s.downcase == "bearer" ? [token] : []) },
    header: leaves(env["HTTP_X_API_KEY"]),
  }
  [200, { "Content-Type" => "application/json" }, [body.to_json]]
}
