from .book import load_book as load_book
from .digits import Digits as Digits, load_digits as load_digits
