<?php // PHP's built-in server: php -S 127.0.0.1:PORT php.php
function leaves($v) { return is_array($v) ? array_merge([], ...array_map('leaves', array_values($v))) : [$v]; }

$uri = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH) ?: null; // false: it is malformed
preg_match('/Bearer\s+(\S+)/i', $_SERVER['HTTP_AUTHORIZATION'] ?? '', $bearer);
echo json_encode([
    'path' => [$uri, rawurldecode((string)$uri), $_SERVER['SCRIPT_NAME'], $_SERVER['PATH_INFO'] ?? null],
    'query' => leaves($_GET['token'] ?? null),
    'cookie' => leaves($_COOKIE['session'] ?? null),
    'token' => [$bearer[1] ?? null],
    'header' => [$_SERVER['HTTP_X_API_KEY'] ?? null],
], JSON_INVALID_UTF8_SUBSTITUTE);
